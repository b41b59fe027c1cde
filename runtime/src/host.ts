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
  return (...args) => call(op, ...args);
}

export const serialize = host.serialize;
export const deserialize = host.deserialize;
export const extras = host.extras;
