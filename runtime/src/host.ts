// The only door to Go. Every other file calls Go through `sync` and `async` here; user code never sees the raw object.

interface RawHost {
  call(op: number, ...args: unknown[]): any;
  async(op: number, ...args: unknown[]): Promise<any>;
  serialize(value: unknown): ArrayBuffer;
  deserialize(bytes: ArrayBuffer): any;
  extras: {
    getContinuationPreservedEmbedderData(): unknown;
    setContinuationPreservedEmbedderData(value: unknown): void;
  };
}

declare const __host: RawHost;
declare const __ops: Record<string, number>; // written in front of the bundle from the tables of internal/hostcall

const host = __host;
const ops = __ops;

function number(name: string): number {
  const n = ops[name];
  if (n === undefined) throw new Error(`host function ${name} is in no table`);
  return n;
}

/** A Go function that works inline. Resolved once, when the runtime is loaded. */
export function sync<R = any>(name: string): (...args: any[]) => R {
  const op = number(name);
  const call = host.call;
  return (...args) => call(op, ...args);
}

/** A Go function that settles the returned promise later. */
export function async<R = any>(name: string): (...args: any[]) => Promise<R> {
  const op = number(name);
  const call = host.async;
  return (...args) => {
    tellSection();
    return call(op, ...args);
  };
}

export const serialize = host.serialize;
export const deserialize = host.deserialize;

// ---- what follows the code across its awaits

/** Follows the running code through every await. V8 keeps it; nothing is paid while there is none. */
export interface Frame {
  /** The critical section of a cell that the code belongs to; 0 outside. */
  section: number;
  /** Values of AsyncLocalStorage instances. */
  locals: Map<object, unknown> | undefined;
}

/** How many critical sections are open in this isolate: while it is zero, asynchronous calls need not say theirs. */
export const frames = { sections: 0 };

const call_ = host.call;
const sectionOp = number("worker.section");
const get = host.extras.getContinuationPreservedEmbedderData;
const set = host.extras.setContinuationPreservedEmbedderData;

/** Tells Go whose code makes the next call, for calls that are answered later though they are not `async`. */
export function tellSection(): void {
  if (frames.sections > 0) call_(sectionOp, frame()?.section ?? 0);
}

export function frame(): Frame | undefined {
  return get() as Frame | undefined;
}

/** Runs f, and everything that it starts, in the frame. */
export function within<R>(frame: Frame | undefined, f: () => R): R {
  const before = get();
  set(frame);
  try {
    return f();
  } finally {
    set(before);
  }
}
