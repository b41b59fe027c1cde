// Errors on their way to Go and back.

import { serialize } from "../host";

export interface Described {
  name: string;
  message: string;
  stack: string;
  clone: ArrayBuffer | undefined;
  flags: number;
}

/** Everything that a caller elsewhere is told of a thrown value. */
export function describeError(value: unknown): Described {
  let clone: ArrayBuffer | undefined;
  try {
    clone = serialize(value);
  } catch {
    // What cannot be cloned is told by name and message.
  }
  if (!(value instanceof Error)) return { name: "Error", message: text(value), stack: "", clone, flags: 0 };
  const e = value as any;
  const flags = (e.remote ? 1 : 0) | (e.retryable ? 2 : 0) | (e.overloaded ? 4 : 0) | (e.durableObjectReset ? 8 : 0);
  return { name: text(e.name), message: text(e.message), stack: typeof e.stack === "string" ? e.stack : "", clone, flags };
}

function text(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "an error that cannot be shown";
  }
}
