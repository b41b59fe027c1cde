// storage.sql: cursors over the statements that Go runs. A query brings its first two rows with it; more are fetched one
// by one when a cursor is stepped, or all at once by toArray().

import { sync } from "../host";

const bind = sync("sql.bind");
const exec = sync<[cursor: number, columns: string, rows: unknown[][] | undefined, read: number, written: number]>("sql.exec");
const next = sync<[cursor: number, rows: unknown[][] | undefined, read: number, written: number]>("sql.next");
const rest = sync<[cursor: number, rows: unknown[][] | undefined, read: number, written: number]>("sql.rest");
const size = sync<number>("sql.size");

/** Values that fit into one call; more go ahead in calls of their own. */
const perCall = 10;

export class Sql {
  readonly #guard: () => void;
  constructor(guard: () => void) {
    this.#guard = guard;
  }
  exec(query: string, ...binds: unknown[]): SqlCursor {
    this.#guard();
    const values = binds.map(bindable);
    while (values.length > perCall) bind(...values.splice(0, perCall));
    return new SqlCursor(exec(String(query), ...values), this.#guard);
  }
  get databaseSize(): number {
    this.#guard();
    return size();
  }
  prepare(query: string): (...binds: unknown[]) => SqlCursor {
    return (...binds) => this.exec(query, ...binds);
  }
  Cursor = SqlCursor;
  Statement = class Statement {};
}

function bindable(v: unknown): unknown {
  switch (typeof v) {
    case "number":
      return Number.isNaN(v) ? null : v;
    case "string":
      return v;
    case "undefined":
      return null;
    case "bigint":
      throw new TypeError("Cannot convert a BigInt value to a number");
    case "symbol":
      throw new TypeError("Cannot convert a Symbol value to a string");
  }
  if (v === null || v instanceof ArrayBuffer || ArrayBuffer.isView(v)) return v;
  return String(v);
}

export class SqlCursor {
  #cursor: number;
  #rows: unknown[][];
  #at = 0;
  #read: number;
  #written: number;
  readonly #columns: string[];
  readonly #guard: () => void;

  constructor([cursor, columns, rows, read, written]: [number, string, unknown[][] | undefined, number, number], guard: () => void) {
    this.#guard = guard;
    this.#cursor = cursor;
    this.#columns = columns === "" ? [] : columns.split("\n");
    this.#rows = rows ?? [];
    this.#read = read;
    this.#written = written;
  }

  get columnNames(): string[] {
    return [...this.#columns];
  }
  get rowsRead(): number {
    return this.#read;
  }
  get rowsWritten(): number {
    return this.#written;
  }

  #take(answer: [number, unknown[][] | undefined, number, number]): void {
    const [cursor, rows, read, written] = answer;
    this.#cursor = cursor;
    this.#rows = rows ?? [];
    this.#at = 0;
    this.#read = read || this.#read;
    this.#written = written || this.#written;
  }

  #step(): unknown[] | undefined {
    if (this.#at === this.#rows.length && this.#cursor !== 0) {
      this.#guard();
      this.#take(next(this.#cursor));
    }
    return this.#at < this.#rows.length ? this.#rows[this.#at++] : undefined;
  }

  #drain(): unknown[][] {
    const rows = this.#rows.slice(this.#at);
    this.#rows = [];
    this.#at = 0;
    if (this.#cursor === 0) return rows;
    this.#guard();
    this.#take(rest(this.#cursor));
    const all = rows.length === 0 ? this.#rows : rows.concat(this.#rows);
    this.#rows = [];
    return all;
  }

  #object(row: unknown[]): Record<string, unknown> {
    const o: Record<string, unknown> = {};
    for (let i = 0; i < this.#columns.length; i++) o[this.#columns[i]!] = row[i];
    return o;
  }

  next(): { done?: boolean; value?: Record<string, unknown> } {
    const row = this.#step();
    return row === undefined ? { done: true, value: undefined } : { done: false, value: this.#object(row) };
  }

  toArray(): Record<string, unknown>[] {
    return this.#drain().map((row) => this.#object(row));
  }

  one(): Record<string, unknown> {
    const row = this.#step();
    if (row === undefined) throw new Error("Expected exactly one result from SQL query, but got no results.");
    if (this.#step() !== undefined) throw new Error("Expected exactly one result from SQL query, but got multiple results.");
    return this.#object(row);
  }

  raw(): IterableIterator<unknown[]> & { toArray(): unknown[][] } {
    const step = () => this.#step();
    const drain = () => this.#drain();
    return {
      next: () => {
        const row = step();
        return row === undefined ? { done: true, value: undefined } : { done: false, value: row };
      },
      toArray: drain,
      [Symbol.iterator]() {
        return this as any;
      },
    } as any;
  }

  [Symbol.iterator](): SqlCursor {
    return this;
  }
}
