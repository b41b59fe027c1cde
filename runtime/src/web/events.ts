// Event, EventTarget and the kinds of events that the platform dispatches.

const internal = Symbol("event state");

interface State {
  target: EventTarget | null;
  stopped: boolean;
  stopNow: boolean;
  canceled: boolean;
  dispatching: boolean;
  passive: boolean;
}

export interface EventInit {
  bubbles?: boolean;
  cancelable?: boolean;
  composed?: boolean;
}

export class Event {
  static readonly NONE = 0;
  static readonly CAPTURING_PHASE = 1;
  static readonly AT_TARGET = 2;
  static readonly BUBBLING_PHASE = 3;

  #type: string;
  #bubbles: boolean;
  #cancelable: boolean;
  #composed: boolean;
  [internal]: State = { target: null, stopped: false, stopNow: false, canceled: false, dispatching: false, passive: false };

  constructor(type: string, init: EventInit = {}) {
    if (arguments.length === 0) throw new TypeError("Failed to construct 'Event': constructor parameter 1 is not of type 'string'.");
    this.#type = String(type);
    this.#bubbles = !!init?.bubbles;
    this.#cancelable = !!init?.cancelable;
    this.#composed = !!init?.composed;
    Object.defineProperty(this, internal, { enumerable: false });
  }

  get type() { return this.#type; }
  get bubbles() { return this.#bubbles; }
  get cancelable() { return this.#cancelable; }
  get composed() { return this.#composed; }
  get defaultPrevented() { return this.#cancelable && this[internal].canceled; }
  get returnValue() { return !this.defaultPrevented; }
  get target() { return this[internal].target; }
  get srcElement() { return this[internal].target; }
  get currentTarget() { return this[internal].target; }
  get eventPhase() { return this[internal].dispatching ? Event.AT_TARGET : Event.NONE; }
  get timeStamp() { return 0; }
  get isTrusted() { return false; }
  get cancelBubble() { return this[internal].stopped; }
  set cancelBubble(stop: boolean) { if (stop) this[internal].stopped = true; }
  composedPath(): EventTarget[] { return this[internal].dispatching ? [this[internal].target!] : []; }
  stopPropagation() { this[internal].stopped = true; }
  stopImmediatePropagation() { this[internal].stopped = this[internal].stopNow = true; }
  // As in workerd, an event that is not cancelable still makes dispatchEvent return false.
  preventDefault() { if (!this[internal].passive) this[internal].canceled = true; }
}

type Handler = ((event: any) => unknown) | { handleEvent(event: any): unknown };

interface Listener {
  callback: Handler;
  capture: boolean;
  once: boolean;
  passive: boolean;
  removed: boolean;
}

export interface ListenerOptions {
  capture?: boolean;
  once?: boolean;
  passive?: boolean;
  signal?: EventTarget & { aborted: boolean };
}

/** What an error thrown by a listener does; the engine may replace it by its uncaught error report. */
let report: (error: unknown) => void = (error) => { Promise.reject(error); };

export function setErrorReporter(f: (error: unknown) => void): void {
  report = f;
}

export function reportError(error: unknown): void {
  report(error);
}

export class EventTarget {
  #listeners: Map<string, Listener[]> | undefined;

  addEventListener(type: string, callback: Handler | null, options?: ListenerOptions | boolean): void {
    const o = typeof options === "object" && options !== null ? options : { capture: !!options };
    if (o.signal !== undefined && typeof o.signal?.aborted !== "boolean") throw new TypeError("Failed to execute 'addEventListener' on 'EventTarget': member signal is not of type 'AbortSignal'.");
    if (callback == null || o.signal?.aborted) return;
    if (typeof callback !== "function" && typeof callback !== "object") throw new TypeError("Failed to execute 'addEventListener' on 'EventTarget': parameter 2 is not of type 'EventListener'.");
    type = String(type);
    const all = (this.#listeners ??= new Map());
    let list = all.get(type);
    if (!list) all.set(type, (list = []));
    if (list.some((l: Listener) => l.callback === callback && l.capture === !!o.capture)) return;
    const l: Listener = { callback, capture: !!o.capture, once: !!o.once, passive: !!o.passive, removed: false };
    list.push(l);
    o.signal?.addEventListener("abort", () => this.#remove(type, l), { once: true });
  }

  removeEventListener(type: string, callback: Handler | null, options?: ListenerOptions | boolean): void {
    const capture = typeof options === "object" && options !== null ? !!options.capture : !!options;
    const l = this.#listeners?.get(String(type))?.find((l: Listener) => l.callback === callback && l.capture === capture);
    if (l) this.#remove(String(type), l);
  }

  #remove(type: string, l: Listener): void {
    l.removed = true;
    const list = this.#listeners?.get(type);
    const i = list?.indexOf(l) ?? -1;
    if (i >= 0) this.#listeners!.set(type, list!.toSpliced(i, 1));
  }

  dispatchEvent(event: Event): boolean {
    if (!(event instanceof Event)) throw new TypeError("Failed to execute 'dispatchEvent' on 'EventTarget': parameter 1 is not of type 'Event'.");
    const state = event[internal];
    if (state.dispatching) throw new TypeError("The event is already being dispatched.");
    state.target = this;
    const list = this.#listeners?.get(event.type);
    if (list) this.#run(list, event, state);
    return !state.canceled;
  }

  #run(list: readonly Listener[], event: Event, state: State): void {
    state.dispatching = true;
    state.stopNow = false;
    for (const l of list.slice()) {
      if (l.removed) continue;
      if (l.once) this.#remove(event.type, l);
      state.passive = l.passive;
      try {
        if (typeof l.callback === "function") l.callback.call(this, event);
        else l.callback.handleEvent(event);
      } catch (error) {
        report(error);
      }
      if (state.stopNow) break;
    }
    state.dispatching = state.passive = false;
  }

  /** Whether anybody listens: events that nobody hears need not be made. */
  static hears(target: EventTarget, type: string): boolean {
    return (target.#listeners?.get(type)?.length ?? 0) > 0;
  }
}

const handlers = new WeakMap<object, Map<string, { value: unknown; listener: (e: Event) => unknown }>>();

/** Gives a class the attributes onabort, onmessage and so on. */
export function handlerAttributes(target: { prototype: EventTarget }, ...types: string[]): void {
  for (const type of types) {
    Object.defineProperty(target.prototype, "on" + type, {
      configurable: true,
      enumerable: true,
      get(this: EventTarget) { return handlers.get(this)?.get(type)?.value ?? null; },
      set(this: EventTarget, value: unknown) { setHandler(this, type, value); },
    });
  }
}

function setHandler(target: EventTarget, type: string, value: unknown): void {
  let own = handlers.get(target);
  if (!own) handlers.set(target, (own = new Map()));
  const usable = typeof value === "function" || (typeof value === "object" && value !== null);
  const before = own.get(type);
  if (!usable) {
    if (before) target.removeEventListener(type, before.listener);
    own.delete(type);
  } else if (before) {
    before.value = value; // keeps its place among the listeners
  } else {
    const entry = { value, listener: (e: Event): unknown => (typeof entry.value === "function" ? entry.value.call(target, e) : undefined) };
    own.set(type, entry);
    target.addEventListener(type, entry.listener);
  }
}

export class CustomEvent extends Event {
  #detail: unknown;
  constructor(type: string, init: EventInit & { detail?: unknown } = {}) { super(type, init); this.#detail = init.detail ?? null; }
  get detail() { return this.#detail; }
}

interface MessageInit {
  data?: unknown;
  origin?: string;
  lastEventId?: string;
  source?: unknown;
  ports?: unknown[];
}

export class MessageEvent extends Event {
  #init: MessageInit;
  constructor(type: string, init: EventInit & MessageInit = {}) { super(type, init); this.#init = init; }
  get data() { return this.#init.data === undefined ? null : this.#init.data; }
  get origin() { return this.#init.origin ?? ""; }
  get lastEventId() { return this.#init.lastEventId ?? ""; }
  get source() { return this.#init.source ?? null; }
  get ports() { return this.#init.ports ?? []; }
}

export class CloseEvent extends Event {
  #code: number;
  #reason: string;
  #clean: boolean;
  constructor(type: string, init: EventInit & { code?: number; reason?: string; wasClean?: boolean } = {}) {
    super(type, init);
    this.#code = Number(init.code ?? 0);
    this.#reason = String(init.reason ?? "");
    this.#clean = !!init.wasClean;
  }
  get code() { return this.#code; }
  get reason() { return this.#reason; }
  get wasClean() { return this.#clean; }
}

export class ErrorEvent extends Event {
  #init: { message?: string; filename?: string; lineno?: number; colno?: number; error?: unknown };
  constructor(type: string, init: EventInit & { message?: string; filename?: string; lineno?: number; colno?: number; error?: unknown } = {}) { super(type, init); this.#init = init; }
  get message() { return String(this.#init.message ?? ""); }
  get filename() { return String(this.#init.filename ?? ""); }
  get lineno() { return Number(this.#init.lineno ?? 0); }
  get colno() { return Number(this.#init.colno ?? 0); }
  get error() { return this.#init.error; }
}

export class PromiseRejectionEvent extends Event {
  #init: { promise: Promise<unknown>; reason?: unknown };
  constructor(type: string, init: EventInit & { promise: Promise<unknown>; reason?: unknown }) { super(type, init); this.#init = init; }
  get promise() { return this.#init.promise; }
  get reason() { return this.#init.reason; }
}
