// setTimeout and its kin. A timer belongs to the actor that set it and ends with it.

import { async, sync } from "../host";
import { reportError } from "../web/events";

const wait = async<void>("timer.wait");
const cancel = sync("timer.cancel");

let last = 0;
const live = new Set<number>();

function start(repeat: boolean, f: unknown, ms: unknown, args: unknown[]): number {
  if (typeof f !== "function") throw new TypeError(`Failed to execute '${repeat ? "setInterval" : "setTimeout"}': the callback is not a function.`);
  const id = ++last;
  live.add(id);
  run(id, repeat, f, Number(ms) || 0, args);
  return id;
}

async function run(id: number, repeat: boolean, f: Function, ms: number, args: unknown[]): Promise<void> {
  do {
    await wait(ms, id);
    if (!live.has(id)) return;
    if (!repeat) live.delete(id);
    try {
      f(...args);
    } catch (error) {
      reportError(error);
    }
  } while (repeat && live.has(id));
}

function clear(id: unknown): void {
  const n = Number(id);
  if (live.delete(n)) cancel(n);
}

export const timers = {
  setTimeout: (f: unknown, ms?: unknown, ...args: unknown[]) => start(false, f, ms, args),
  setInterval: (f: unknown, ms?: unknown, ...args: unknown[]) => start(true, f, ms, args),
  clearTimeout: (id: unknown) => clear(id),
  clearInterval: (id: unknown) => clear(id),
  setImmediate: (f: unknown, ...args: unknown[]) => start(false, f, 0, args),
  clearImmediate: (id: unknown) => clear(id),
};
