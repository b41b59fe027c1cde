// AbortController and AbortSignal.
import { Event, EventTarget, handlerAttributes } from "./events";
import { abortError } from "./exception";

const token = Symbol("internal");

declare function setTimeout(f: () => void, ms: number): unknown;

export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason: unknown = undefined;
  #dependents: Set<WeakRef<AbortSignal>> | undefined;
  #sources: AbortSignal[] | undefined; // a combined signal keeps what it depends on alive
  declare onabort: ((event: Event) => unknown) | null;

  constructor(secret?: unknown) {
    if (secret !== token) throw new TypeError("Illegal constructor");
    super();
  }

  get aborted(): boolean { return this.#aborted; }
  get reason(): unknown { return this.#reason; }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  static abort(reason: unknown = abortError()): AbortSignal {
    const s = new AbortSignal(token);
    s.#aborted = true;
    s.#reason = reason;
    return s;
  }

  static timeout(ms: number): AbortSignal {
    const s = new AbortSignal(token);
    setTimeout(() => triggerSignal(s, abortError("TimeoutError")), Number(ms));
    return s;
  }

  static any(signals: Iterable<AbortSignal>): AbortSignal {
    const list = [...signals];
    list.forEach((x, i) => {
      if (!(x instanceof AbortSignal)) throw new TypeError(`Incorrect type for array element ${i}: the provided value is not of type 'AbortSignal'.`);
    });
    const done = list.find((x) => x.#aborted);
    if (done) return AbortSignal.abort(done.#reason);
    const s = new AbortSignal(token);
    s.#sources = list;
    const ref = new WeakRef(s);
    for (const x of list) (x.#dependents ??= new Set()).add(ref);
    return s;
  }

  /** A signal for the platform's own use; trigger aborts it. */
  static create(): AbortSignal { return new AbortSignal(token); }

  static trigger(s: AbortSignal, reason: unknown): void {
    if (s.#aborted) return;
    s.#aborted = true;
    s.#reason = reason;
    const woken: AbortSignal[] = [];
    for (const ref of s.#dependents ?? []) {
      const d = ref.deref();
      if (!d || d.#aborted) continue;
      d.#aborted = true; // all know before the first listener runs
      d.#reason = reason;
      d.#sources = undefined;
      woken.push(d);
    }
    s.#dependents = undefined;
    s.dispatchEvent(new Event("abort"));
    for (const d of woken) AbortSignal.#announce(d);
  }

  /** The event of a combined signal, and of those that depend on it in turn. */
  static #announce(s: AbortSignal): void {
    const next = s.#dependents;
    s.#dependents = undefined;
    s.dispatchEvent(new Event("abort"));
    for (const ref of next ?? []) {
      const d = ref.deref();
      if (d) triggerSignal(d, s.#reason);
    }
  }
}

handlerAttributes(AbortSignal, "abort");

/** The platform's way to make and fire signals, hidden from user code. */
export const createSignal = AbortSignal.create;
export const triggerSignal = AbortSignal.trigger;
delete (AbortSignal as any).create;
delete (AbortSignal as any).trigger;

export class AbortController {
  #signal = createSignal();
  get signal(): AbortSignal { return this.#signal; }
  abort(reason: unknown = abortError()): void { triggerSignal(this.#signal, reason); }
}
