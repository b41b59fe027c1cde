// One RPC session: two sides, each with a table of what it exports and of what it asked. Messages are arrays, in order:
//
//   [Push,    call, target, path, seen, args?]   call a method, or read a property when args is missing
//   [Resolve, call, value]                       its result
//   [Reject,  call, error]                       its error
//   [Release, export, count]                     the other side dropped that many references
//
// `seen` counts the results that the asking side has taken: a call whose result it has seen is never a target again, so
// the answering side forgets it then.
//
// A target is an export of the receiver (0 is its main object) or a call whose answer has not come yet: calls on a
// promise travel at once and wait on the receiving side, which is all there is to pipelining. The side that asks learns
// of nothing but results; what an argument's stub points to stays where it is.

import { type Clone, Decoder, Encoder, type Kind, errorKind, toBytes } from "./codec";
import { descend, invoke } from "./dispatch";
import { stubFor } from "./stub";
import { type Hook, RpcTarget, hookOf } from "./target";

const enum Op { Push, Resolve, Reject, Release }

type Target = [kind: "export" | "answer", id: number];

export interface Transport {
  send(bytes: ArrayBuffer): void;
  /** Called once, when neither side holds anything of the other any more, or with the reason of a failure. */
  close(reason?: Error): void;
}

interface Export {
  value: unknown;
  refs: number;
}

interface Question {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

export interface SessionOptions {
  transport: Transport;
  clone: Clone;
  /** What the other side reaches at first; undefined on a side that only asks. */
  main?: unknown;
  /** Kinds of values beside stubs and errors: streams, requests, responses, … */
  kinds?: readonly Kind[];
  /** A server stays open for further calls until the other side closes. */
  keepOpen?: boolean;
}

export class Session {
  readonly #transport: Transport;
  readonly #clone: Clone;
  readonly #kinds: readonly Kind[];
  readonly #kindsByName: ReadonlyMap<string, Kind>;
  readonly #keepOpen: boolean;
  readonly #exports = new Map<number, Export>();
  readonly #exportIds = new Map<object, number>();
  readonly #imports = new Map<number, Import>();
  readonly #questions = new Map<number, Question>();
  readonly #answers = new Map<number, Promise<unknown>>();
  /** Calls answered, in order, that the other side may not know to be answered yet. */
  #answered: number[] = [];
  #results = 0; // results taken from the other side
  #confirmed = 0; // how many of our results the other side has confirmed
  #fresh: Import[] | undefined; // collects the stubs of the value being unpacked
  #nextExport = 1;
  #nextCall = 1;
  #closed: Error | undefined;

  constructor(options: SessionOptions) {
    this.#transport = options.transport;
    this.#clone = options.clone;
    this.#keepOpen = options.keepOpen ?? false;
    this.#kinds = [this.#stubKind(), errorKind, ...(options.kinds ?? [])];
    this.#kindsByName = new Map(this.#kinds.map((k) => [k.name, k]));
    if (options.main !== undefined) this.#exports.set(0, { value: options.main, refs: Infinity });
  }

  get open(): boolean {
    return this.#closed === undefined;
  }

  // ---- asking

  call(target: Target, path: readonly string[], args: readonly unknown[] | undefined): { id: number; result: Promise<unknown> } {
    const id = this.#nextCall++;
    const result = new Promise<unknown>((resolve, reject) => this.#questions.set(id, { resolve, reject }));
    try {
      if (this.#closed) throw this.#closed;
      const message: unknown[] = [Op.Push, id, target, path, this.#results];
      if (args !== undefined) message.push(this.#pack(args));
      this.#send(message);
    } catch (error) {
      this.#settle(id, (q) => q.reject(error));
    }
    return { id, result };
  }

  release(exportId: number, count: number): void {
    this.#imports.delete(exportId);
    if (this.open) this.#send([Op.Release, exportId, count]);
    this.#closeWhenDone();
  }

  pending(call: number): boolean {
    return this.#questions.has(call);
  }

  // ---- answering

  /** Takes one message of the other side. */
  receive(bytes: ArrayBuffer): void {
    if (!this.open) return;
    let message: any[];
    try {
      message = this.#clone.deserialize(bytes);
      this.#take(message);
    } catch (error) {
      this.abort(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #take(message: any[]): void {
    switch (message[0]) {
      case Op.Push:
        this.#confirm(message[4]);
        return this.#push(message[1], message[2], message[3], message[5]);
      case Op.Resolve:
        this.#results++;
        return this.#settle(message[1], (q) => q.resolve(this.#unpackResult(message[2])));
      case Op.Reject:
        this.#results++;
        return this.#settle(message[1], (q) => q.reject(remote(this.#unpack(message[2]).value)));
      case Op.Release:
        return this.#released(message[1], message[2]);
      default:
        throw new Error(`The peer sent an RPC message of the unknown kind ${message[0]}.`);
    }
  }

  #push(id: number, target: Target, path: string[], packed: unknown): void {
    const answer = this.#run(target, path, packed);
    this.#answers.set(id, answer);
    answer.then(
      (value) => this.#answer(id, value),
      (error) => this.#fail(id, error),
    );
  }

  async #run(target: Target, path: string[], packed: unknown): Promise<unknown> {
    const { value: args, stubs: lent } = packed === undefined ? { value: undefined, stubs: [] } : this.#unpack(packed);
    const object = target[0] === "answer" ? await this.#answerOf(target[1]) : this.#exportOf(target[1]);
    try {
      return await (args === undefined ? descend(object, path) : invoke(object, path, args as unknown[]));
    } finally {
      // Stubs among the arguments were lent for the call; who needs one longer has taken a dup().
      for (const stub of lent) stub.dispose();
    }
  }

  #answerOf(id: number): Promise<unknown> {
    const answer = this.#answers.get(id);
    if (answer === undefined) throw new TypeError("The RPC promise that this call was made on is not known any more.");
    return answer;
  }

  #exportOf(id: number): unknown {
    const e = this.#exports.get(id);
    if (e === undefined) throw new TypeError("The RPC stub that this call was made on was disposed.");
    return e.value;
  }

  #answer(id: number, value: unknown): void {
    if (!this.open) return;
    let packed: unknown;
    try {
      packed = this.#pack(value);
      this.#send([Op.Resolve, id, packed]);
    } catch (error) {
      return this.#fail(id, error);
    }
    this.#answered.push(id);
  }

  #fail(id: number, thrown: unknown): void {
    if (!this.open) return;
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    try {
      this.#send([Op.Reject, id, this.#pack(error)]);
    } catch (second) {
      this.#send([Op.Reject, id, this.#pack(second)]);
    }
    this.#answered.push(id);
  }

  #confirm(seen: number): void {
    for (const id of this.#answered.splice(0, seen - this.#confirmed)) this.#answers.delete(id);
    this.#confirmed = seen;
  }

  #settle(id: number, how: (q: Question) => void): void {
    const question = this.#questions.get(id);
    if (question === undefined) return;
    this.#questions.delete(id);
    how(question);
    this.#closeWhenDone();
  }

  // ---- references

  #stubKind(): Kind {
    return {
      name: "stub",
      encode: (value) => {
        const hook = hookOf(value);
        if (hook instanceof Import && hook.session === this) return ["yours", hook.id];
        if (hook === undefined && typeof value !== "function" && !(value instanceof RpcTarget)) return undefined;
        return ["mine", this.#export(value), typeof value === "function" && hook === undefined];
      },
      decode: ([side, id]) => {
        if (side === "yours") return this.#exportOf(id);
        let hook = this.#imports.get(id);
        if (hook === undefined) this.#imports.set(id, (hook = new Import(this, id)));
        else hook.receivedAgain();
        this.#fresh?.push(hook);
        return stubFor(hook);
      },
    };
  }

  #export(value: object): number {
    let id = this.#exportIds.get(value);
    if (id !== undefined) {
      this.#exports.get(id)!.refs++;
      return id;
    }
    id = this.#nextExport++;
    // A stub of another session is passed on under a reference of our own, so that its owner may dispose it.
    const held = hookOf(value)?.dup();
    this.#exports.set(id, { value: held ? stubFor(held) : value, refs: 1 });
    this.#exportIds.set(value, id);
    return id;
  }

  #released(id: number, count: number): void {
    const e = this.#exports.get(id);
    if (e === undefined || (e.refs -= count) > 0) return;
    this.#exports.delete(id);
    for (const [value, known] of this.#exportIds) if (known === id) this.#exportIds.delete(value);
    dispose(e.value);
    this.#closeWhenDone();
  }

  // ---- the end

  /** Breaks the session: every question fails, every stub is broken. */
  abort(reason: Error): void {
    if (this.#closed) return;
    this.#end(reason);
    this.#transport.close(reason);
  }

  /** The other side is gone. */
  closed(reason?: Error): void {
    if (this.#closed) return;
    this.#end(reason ?? new Error("The RPC session was closed by the other side."));
  }

  #end(reason: Error): void {
    this.#closed = reason;
    const questions = [...this.#questions.values()];
    this.#questions.clear();
    for (const q of questions) q.reject(reason);
    const imports = [...this.#imports.values()];
    this.#imports.clear();
    for (const i of imports) i.broken(reason);
    const exports = [...this.#exports];
    this.#exports.clear();
    this.#exportIds.clear();
    for (const [id, e] of exports) if (id !== 0) dispose(e.value);
    this.#answers.clear();
  }

  #closeWhenDone(): void {
    if (this.#keepOpen || !this.open) return;
    const held = this.#exports.size - (this.#exports.has(0) ? 1 : 0);
    if (this.#questions.size || this.#imports.size || held) return;
    this.#end(new Error("The RPC session has ended."));
    this.#transport.close();
  }

  // ---- bytes

  #pack(value: unknown): unknown {
    return new Encoder(this.#kinds).pack(value);
  }

  /** The value, and the stubs that came with it. */
  #unpack(packed: unknown): { value: unknown; stubs: Import[] } {
    const stubs: Import[] = (this.#fresh = []);
    try {
      return { value: new Decoder(this.#kindsByName).unpack(packed), stubs };
    } finally {
      this.#fresh = undefined;
    }
  }

  // A result that holds stubs can be disposed as a whole.
  #unpackResult(packed: unknown): unknown {
    const { value, stubs } = this.#unpack(packed);
    if (stubs.length && value !== null && typeof value === "object" && !hookOf(value)) {
      Object.defineProperty(value, Symbol.dispose, { value: () => stubs.forEach((s) => s.dispose()), configurable: true });
    }
    return value;
  }

  #send(message: unknown[]): void {
    this.#transport.send(toBytes(this.#clone, message));
  }
}

function remote(error: unknown): unknown {
  if (error instanceof Error && !(error as any).durableObjectReset) {
    try {
      (error as any).remote = true;
    } catch {
      // A frozen error says no more than it does.
    }
  }
  return error;
}

export function dispose(value: unknown): void {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return;
  const f = (value as any)[Symbol.dispose];
  if (typeof f === "function") f.call(value);
}

/**
 * The main object of the other side. Its session is opened by the first call, shared by calls made meanwhile, and
 * closes by itself when nothing is held any more; the next call then opens another.
 */
export class Remote implements Hook {
  readonly #open: (last: Session | undefined) => Session;
  #session: Session | undefined;

  /** open makes a session, or gives the last one back if it still serves. */
  constructor(open: (last: Session | undefined) => Session) {
    this.#open = open;
  }

  call(path: readonly string[], args: readonly unknown[] | undefined) {
    this.#session = this.#open(this.#session);
    return question(this.#session, ["export", 0], path, args);
  }
  dup(): Hook {
    return this;
  }
  dispose(): void {}
  onBroken(): void {}
}

/** A reference to something on the other side. */
class Import implements Hook {
  #received = 1; // how often the other side gave it to us: what we owe when we let go
  #local = 1; // stubs of ours that hold it
  #broken: Error | undefined;
  readonly #watchers: ((error: unknown) => void)[] = [];

  constructor(readonly session: Session, readonly id: number) {}

  call(path: readonly string[], args: readonly unknown[] | undefined) {
    return question(this.session, ["export", this.id], path, args);
  }

  dup(): Hook {
    this.#local++;
    return this;
  }

  dispose(): void {
    if (this.#local > 0 && --this.#local === 0) this.session.release(this.id, this.#received);
  }

  receivedAgain(): void {
    this.#received++;
    this.#local++;
  }

  broken(reason: Error): void {
    this.#broken = reason;
    for (const w of this.#watchers) w(reason);
  }

  onBroken(watcher: (error: unknown) => void): void {
    if (this.#broken) watcher(this.#broken);
    else this.#watchers.push(watcher);
  }
}

/** The future result of a call, on which further calls can be made at once. */
class Answer implements Hook {
  constructor(readonly session: Session, readonly id: number, readonly result: Promise<unknown>) {}

  call(path: readonly string[], args: readonly unknown[] | undefined) {
    if (this.session.pending(this.id)) return question(this.session, ["answer", this.id], path, args);
    // The result is here: go on with what it holds.
    const result = this.result.then((value) => (args === undefined ? descend(value, path) : invoke(value, path, args)));
    return { hook: new Answer(this.session, -1, result), result };
  }

  dup(): Hook {
    return this;
  }
  dispose(): void {
    this.result.then(dispose, () => {});
  }
  onBroken(watcher: (error: unknown) => void): void {
    this.result.catch(watcher);
  }
}

function question(session: Session, target: Target, path: readonly string[], args: readonly unknown[] | undefined) {
  const { id, result } = session.call(target, path, args);
  return { hook: new Answer(session, id, result), result };
}
