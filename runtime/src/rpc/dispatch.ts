// Which members of an object a caller elsewhere may reach, and how a call finds its method.

import { RpcTarget, hookOf } from "./target";

/** Classes, beside RpcTarget, whose instances offer their prototype's methods: entrypoints and Durable Objects. */
const targetClasses: Function[] = [RpcTarget];

export function offerMethodsOf(base: Function): void {
  targetClasses.push(base);
}

/** Names that mean something to the platform and are never called as RPC methods. */
const reserved = new Set(["constructor", "dup", "connect", "alarm", "scheduled", "queue", "tail", "email", "test", "trace",
  "webSocketMessage", "webSocketClose", "webSocketError", "fetch"]);

function isTarget(object: object): boolean {
  return targetClasses.some((c) => object instanceof c);
}

/** The member `name` of object as a caller elsewhere sees it. */
function member(object: unknown, name: string): unknown {
  if (object === null || (typeof object !== "object" && typeof object !== "function")) throw missing(name);
  if (hookOf(object)) return (object as any)[name];
  if (isTarget(object)) return prototypeMember(object, name);
  if (typeof object === "object" && Object.hasOwn(object, name)) return (object as any)[name];
  throw missing(name);
}

// Instance fields of a target hold its state, env and ctx: only what its classes declare is offered.
function prototypeMember(object: object, name: string): unknown {
  if (reserved.has(name) || Object.hasOwn(object, name)) throw missing(name);
  for (let p = Object.getPrototypeOf(object); p && p !== Object.prototype && !targetClasses.includes(p.constructor); p = Object.getPrototypeOf(p)) {
    if (Object.hasOwn(p, name)) return Reflect.get(p, name, object);
  }
  throw missing(name);
}

function missing(name: string): TypeError {
  return new TypeError(`The RPC receiver does not implement the method "${name}".`);
}

/** The value at the end of path. */
export async function descend(object: unknown, path: readonly string[]): Promise<unknown> {
  let at = object;
  for (const name of path) at = await member(at, name);
  return at;
}

/** Calls the function at the end of path. */
export async function invoke(object: unknown, path: readonly string[], args: readonly unknown[]): Promise<unknown> {
  if (path.length === 0) {
    if (typeof object !== "function") throw new TypeError("The RPC receiver is not a function.");
    return object(...args);
  }
  // The first step must not yield: calls on one stub then start in the order in which they were made.
  let owner = object;
  if (path.length > 1) owner = await descend(object, path.slice(0, -1));
  const name = path[path.length - 1]!;
  const method = member(owner, name);
  if (typeof method !== "function") throw new TypeError(`"${name}" is not a function.`);
  return Reflect.apply(method, owner, args as unknown[]);
}
