// performance, navigator, scheduler and queueMicrotask.
import type { AbortSignal } from "./abort";
import { EventTarget, reportError } from "./events";

declare function setTimeout(f: () => void, ms: number): unknown;
declare function clearTimeout(id: unknown): void;

/** As in workerd: time starts at the epoch, so that now() tells nothing that Date.now() does not. */
export class Performance extends EventTarget {
  get timeOrigin(): number { return 0; }
  now(): number { return Date.now(); }
  toJSON(): object { return { timeOrigin: 0 }; }
  mark(name: string, options: { startTime?: number; detail?: unknown } = {}): PerformanceMark { return new PerformanceMark(name, options); }
  measure(name: string, ..._range: unknown[]): PerformanceMeasure { return new PerformanceMeasure(name); }
  clearMarks(): void {}
  clearMeasures(): void {}
  clearResourceTimings(): void {}
  getEntries(): PerformanceEntry[] { return []; }
  getEntriesByName(_name: string): PerformanceEntry[] { return []; }
  getEntriesByType(_type: string): PerformanceEntry[] { return []; }
  setResourceTimingBufferSize(_n: number): void {}
  get eventCounts(): Map<string, number> { return new Map(); }
  timerify<F>(f: F): F { return f; }
}

export class PerformanceEntry {
  #name: string;
  #start: number;
  constructor(name: string, start: number) {
    this.#name = String(name);
    this.#start = start;
  }
  get name() { return this.#name; }
  get entryType() { return ""; }
  get startTime() { return this.#start; }
  get duration() { return 0; }
  toJSON() { return { name: this.name, entryType: this.entryType, startTime: this.startTime, duration: this.duration }; }
}

export class PerformanceMark extends PerformanceEntry {
  #detail: unknown;
  constructor(name: string, options: { startTime?: number; detail?: unknown } = {}) {
    super(name, options.startTime ?? Date.now());
    this.#detail = options.detail ?? null;
  }
  override get entryType() { return "mark"; }
  get detail() { return this.#detail; }
}

export class PerformanceMeasure extends PerformanceEntry {
  constructor(name: string) { super(name, Date.now()); }
  override get entryType() { return "measure"; }
  get detail() { return null; }
}

export class Navigator {
  get userAgent(): string { return "Cloudflare-Workers"; }
  get hardwareConcurrency(): number { return 1; }
  get language(): string { return "en"; }
  get languages(): string[] { return ["en"]; }
  get platform(): string { return ""; }
  sendBeacon(_url: string, _body?: unknown): boolean { throw new Error("navigator.sendBeacon() is not supported by celld. Use ctx.waitUntil(fetch(…))."); }
}

export class Scheduler {
  wait(ms: number, options: { signal?: AbortSignal } = {}): Promise<void> {
    const signal = options.signal;
    return new Promise((done, fail) => {
      if (signal?.aborted) return fail(signal.reason);
      const stop = () => { clearTimeout(id); fail(signal!.reason); };
      const id = setTimeout(() => { signal?.removeEventListener("abort", stop); done(); }, ms);
      signal?.addEventListener("abort", stop, { once: true } as never);
    });
  }
}

const resolved = Promise.resolve();
const then = Promise.prototype.then;

export function queueMicrotask(f: () => void): void {
  if (typeof f !== "function") throw new TypeError("Failed to execute 'queueMicrotask' on 'ServiceWorkerGlobalScope': parameter 1 is not of type 'function'.");
  then.call(resolved, () => {
    try {
      f();
    } catch (error) {
      reportError(error);
    }
  });
}

