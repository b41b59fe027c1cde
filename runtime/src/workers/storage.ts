// ctx.storage: the key-value API in both its forms, SQL, transactions and the alarm. SQLite is on the Go side and
// works inline; what returns a promise here does so because the platform's API does.

import { async, serialize, sync } from "../host";
import { DOMException } from "../web/exception";
import { Sql } from "./sql";

const getHost = sync("storage.get");
const putHost = sync("storage.put");
const deleteHost = sync<boolean>("storage.delete");
const listHost = sync<unknown[]>("storage.list");
const deleteAllHost = sync("storage.deleteAll");
const savepoint = sync<string>("storage.savepoint");
const release = sync("storage.release");
const begin = sync<string>("storage.begin");
const end = sync("storage.end");
const getAlarmHost = sync<number | null>("storage.getAlarm");
const setAlarmHost = sync("storage.setAlarm");
const syncHost = async<void>("storage.sync");

export interface ListOptions {
  start?: string;
  startAfter?: string;
  end?: string;
  prefix?: string;
  reverse?: boolean;
  limit?: number;
}

export interface Hooks {
  /** Throws unless the code that runs is the cell's. */
  guard(): void;
  blockConcurrencyWhile<R>(f: () => Promise<R>): Promise<R>;
  deleteAllDeletesAlarm: boolean;
}

function clone(value: unknown): ArrayBuffer {
  try {
    return serialize(value);
  } catch (error: any) {
    throw error?.name === "DataCloneError" ? new DOMException(error.message, "DataCloneError") : error;
  }
}

function putAll(pairs: [string, unknown][]): void {
  // All values are cloned before the first is written: one that cannot be leaves nothing behind.
  const cloned = pairs.map(([key, value]) => {
    if (value === undefined) throw new TypeError("put() called with undefined value.");
    return [key, clone(value)] as const;
  });
  for (const [key, bytes] of cloned) putHost(key, bytes);
}

function list(o: ListOptions = {}): Map<string, unknown> {
  if (o.limit !== undefined && !(Number(o.limit) > 0)) throw new TypeError("List limit must be positive.");
  if (o.start !== undefined && o.startAfter !== undefined) throw new TypeError("list() cannot be called with both start and startAfter values.");
  const flat = listHost(text(o.start), text(o.startAfter), text(o.end), text(o.prefix), !!o.reverse, o.limit === undefined ? 0 : Number(o.limit));
  const map = new Map<string, unknown>();
  for (let i = 0; i < flat.length; i += 2) map.set(flat[i] as string, flat[i + 1]);
  return map;
}

function text(v: unknown): string {
  return v === undefined || v === null ? "" : String(v);
}

/** storage.kv: the same store without promises. */
class SyncKV {
  readonly #guard: () => void;
  constructor(guard: () => void) {
    this.#guard = guard;
  }
  get(key: string): unknown {
    this.#guard();
    return getHost(String(key));
  }
  put(key: string, value: unknown): void {
    this.#guard();
    putAll([[String(key), value]]);
  }
  delete(key: string): boolean {
    this.#guard();
    return deleteHost(String(key));
  }
  list(options?: ListOptions): IterableIterator<[string, unknown]> {
    this.#guard();
    return list(options).entries();
  }
}

/** What storage and a transaction have in common. check throws when it may not be used any more. */
class Operations {
  readonly #guard: () => void;
  constructor(guard: () => void) {
    this.#guard = guard;
  }

  protected check(_verb: string): void {
    this.#guard();
  }

  async get(key: string | string[]): Promise<unknown> {
    this.check("get");
    if (!Array.isArray(key)) return getHost(String(key));
    const found = new Map<string, unknown>();
    for (const k of [...new Set(key.map(String))].sort(byBytes)) {
      const v = getHost(k);
      if (v !== undefined) found.set(k, v);
    }
    return found;
  }

  async put(key: string | Record<string, unknown>, value?: unknown): Promise<void> {
    this.check("put");
    if (key !== null && typeof key === "object") putAll(Object.entries(key));
    else putAll([[String(key), value]]);
  }

  async delete(key: string | string[]): Promise<boolean | number> {
    this.check("delete");
    if (!Array.isArray(key)) return deleteHost(String(key));
    return key.filter((k) => deleteHost(String(k))).length;
  }

  async list(options?: ListOptions): Promise<Map<string, unknown>> {
    this.check("list");
    return list(options);
  }

  async getAlarm(): Promise<number | null> {
    this.check("getAlarm");
    return getAlarmHost();
  }

  async setAlarm(time: number | Date): Promise<void> {
    this.check("setAlarm");
    const ms = time instanceof Date ? time.getTime() : Number(time);
    if (Number.isNaN(ms)) throw new TypeError("The value cannot be converted because it is not a valid Date.");
    if (ms <= 0) throw new TypeError("setAlarm() cannot be called with an alarm time <= 0");
    setAlarmHost(ms);
  }

  async deleteAlarm(): Promise<void> {
    this.check("deleteAlarm");
    setAlarmHost(undefined);
  }
}


// Keys are ordered by their UTF-8 bytes, which for strings is the order of their code points.
function byBytes(a: string, b: string): number {
  const x = [...a];
  const y = [...b];
  for (let i = 0; i < Math.min(x.length, y.length); i++) {
    const d = x[i]!.codePointAt(0)! - y[i]!.codePointAt(0)!;
    if (d !== 0) return d;
  }
  return x.length - y.length;
}

export class DurableObjectTransaction extends Operations {
  #rolledBack = false;

  protected override check(verb: string): void {
    super.check(verb);
    if (this.#rolledBack) throw new Error(`Cannot ${verb}() on rolled back transaction`);
  }
  rollback(): void {
    this.#rolledBack = true;
  }
  /** The storage's side. */
  static wasRolledBack(t: DurableObjectTransaction): boolean {
    return t.#rolledBack;
  }
}

export class DurableObjectStorage extends Operations {
  readonly #hooks: Hooks;
  readonly sql: Sql;
  readonly kv: SyncKV;

  constructor(hooks: Hooks) {
    super(hooks.guard);
    this.#hooks = hooks;
    this.sql = new Sql(hooks.guard);
    this.kv = new SyncKV(hooks.guard);
  }

  async deleteAll(): Promise<void> {
    this.check("deleteAll");
    deleteAllHost(this.#hooks.deleteAllDeletesAlarm);
  }

  /** Everything that f writes lands together, or nothing of it. */
  transactionSync<R>(f: () => R): R {
    this.check("transactionSync");
    const name = savepoint();
    let keep = false;
    try {
      const result = f();
      keep = true;
      return result;
    } finally {
      release(name, keep);
    }
  }

  /** The same over awaits; meanwhile no other event of the object runs. */
  async transaction<R>(f: (txn: DurableObjectTransaction) => Promise<R>): Promise<R> {
    this.check("transaction");
    let failed: { error: unknown } | undefined;
    const result = await this.#hooks.blockConcurrencyWhile(async () => {
      const name = begin();
      const txn = new DurableObjectTransaction(this.#hooks.guard);
      let keep = false;
      try {
        const value = await f(txn);
        keep = !DurableObjectTransaction.wasRolledBack(txn);
        return value;
      } catch (error) {
        // An exception of f rolls back and is the caller's; it does not reset the object.
        failed = { error };
        return undefined as R;
      } finally {
        end(name, keep);
      }
    });
    if (failed) throw failed.error;
    return result;
  }

  async sync(): Promise<void> {
    this.check("sync");
    return syncHost();
  }

  getCurrentBookmark(): never {
    throw noBookmarks();
  }
  getBookmarkForTime(): never {
    throw noBookmarks();
  }
  onNextSessionRestoreBookmark(): never {
    throw noBookmarks();
  }
}

function noBookmarks(): Error {
  return new Error("Point-in-time recovery (bookmarks) is not served by this celld yet.");
}
