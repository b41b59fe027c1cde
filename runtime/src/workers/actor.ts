// The JavaScript side of an actor: one request to a stateless entrypoint, or one cell. Go names actors by number and
// says with every event whose turn it is.

import { describeError } from "./errors";
import { type Frame, frame, frames, sync, within } from "../host";

const enterSection = sync("worker.enterSection");
const leaveSection = sync("worker.leaveSection");
const resetHost = sync("worker.reset");
const current_ = sync<number>("worker.actor");
const finished = sync("worker.finished");

export class Actor {
  /** Promises given to waitUntil, and the number of calls under way: a stateless actor ends when both are done. */
  #pending = 0;
  /** Calls under way, with what aborts them. */
  readonly calls = new Map<number, () => void>();
  readonly pipes = new Map<number, Pipe>();
  readonly sockets = new Map<number, SocketEnd>();
  /** The instance, for cells. */
  instance: any;
  #sections: Promise<unknown> | undefined; // the newest of the critical sections that queue up

  constructor(readonly id: number, readonly isCell: boolean) {}

  /** Work that keeps a stateless actor alive. */
  hold(promise: PromiseLike<unknown>): void {
    this.#pending++;
    const done = () => {
      this.#pending--;
      this.check();
    };
    promise.then(done, done);
  }

  /** Tells Go when nothing is left to do. */
  check(): void {
    if (!this.isCell && this.#pending === 0 && this.calls.size === 0) finished();
  }

  /** The newest critical section that is open or waits. */
  get section(): Promise<unknown> | undefined {
    return this.#sections;
  }

  /**
   * Runs f while all other events of the cell wait. Sections begun by code outside of each other take turns; one begun
   * inside another runs within it.
   */
  blockConcurrencyWhile<R>(f: () => R | Promise<R>): Promise<R> {
    const outer = frame()?.section;
    const run = () => this.#section(f);
    if (outer || this.#sections === undefined) return this.#track(run());
    return this.#track(this.#sections.then(run, run));
  }

  #track<R>(p: Promise<R>): Promise<R> {
    this.#sections = p;
    const clear = () => {
      if (this.#sections === p) this.#sections = undefined;
    };
    p.then(clear, clear);
    return p;
  }

  async #section<R>(f: () => R | Promise<R>): Promise<R> {
    const section = ++lastSection;
    const inner: Frame = { section, locals: frame()?.locals };
    frames.sections++;
    enterSection(section);
    try {
      return await within(inner, async () => await f());
    } catch (error) {
      if (error instanceof Error && Object.isExtensible(error)) (error as any).durableObjectReset = true;
      this.reset(error);
      throw error;
    } finally {
      frames.sections--;
      leaveSection(section);
    }
  }

  /** Throws where the code of another actor uses what belongs to this one; cells of an isolate share their globals. */
  readonly guard = (): void => {
    if (current_() !== this.id) throw new Error(elsewhere);
  };

  /** Gives the cell up: the next event builds it anew. */
  reset(cause: unknown): void {
    const e = describeError(cause);
    resetHost(e.name, e.message, e.stack, e.clone);
  }
}

const elsewhere =
  "Cannot perform I/O on behalf of a different Durable Object. What belongs to one Durable Object, such as its storage, cannot be used by the code of another one, though both may run in the same isolate and see the same global variables.";

let lastSection = 0;

const actors = new Map<number, Actor>();

export function actorOf(id: number, isCell = false): Actor {
  let a = actors.get(id);
  if (a === undefined) actors.set(id, (a = new Actor(id, isCell)));
  return a;
}

export function dropActor(id: number): void {
  actors.delete(id);
}

/** Whose code runs now; undefined in the global scope. */
export function current(): Actor | undefined {
  const id = current_();
  return id === 0 ? undefined : actors.get(id);
}

export interface Pipe {
  receive(bytes: ArrayBuffer): void;
  closed(reason?: Error): void;
}

export interface SocketEnd {
  frame(data: string | ArrayBuffer): void;
  closed(code: number, reason: string, clean: boolean): void;
}
