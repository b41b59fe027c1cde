// What user code holds of something that lives elsewhere: stubs, and the promises that calls on them give.

import { descend, invoke } from "./dispatch";
import { type Hook, RpcTarget, hooks } from "./target";

export class RpcStub {
  constructor(target: unknown) {
    if (typeof target !== "function" && !(target instanceof RpcTarget)) {
      throw new TypeError("RpcStub wraps an RpcTarget or a function.");
    }
    return stubFor(new LocalHook(target as object));
  }
}

/** A future result: awaited like a promise, called and read like what it will be. */
export class RpcPromise {}

/** A property of a stub or of a future result: awaited it is read, called it is a method. */
export class RpcProperty {}

/** A stub that calls through hook. */
export function stubFor(hook: Hook): object {
  const stub = new Proxy(callable(), {
    apply: (_t, _this, args) => promiseFor(hook.call([], args)),
    get: (_t, name) => {
      switch (name) {
        case Symbol.dispose:
          return () => hook.dispose();
        case "dup":
          return () => stubFor(hook.dup());
        case "onRpcBroken":
          return (watcher: (error: unknown) => void) => hook.onBroken(watcher);
        case "then":
        case "catch":
        case "finally":
          return undefined; // a stub is not a promise, and await must not make it a call
      }
      return typeof name === "symbol" ? undefined : property(hook, [name]);
    },
    getPrototypeOf: () => RpcStub.prototype,
    has: (_t, name) => typeof name === "string",
    ownKeys: () => [],
    getOwnPropertyDescriptor: () => undefined,
    set: readOnly,
    defineProperty: readOnly,
    deleteProperty: readOnly,
  });
  hooks.set(stub, hook);
  return stub;
}

/** A property path on a hook; nothing is sent before it is awaited or called. */
export function property(hook: Hook, path: readonly string[]): object {
  let read: Promise<unknown> | undefined;
  const value = () => (read ??= hook.call(path, undefined).result);
  return new Proxy(callable(), {
    apply: (_t, _this, args) => promiseFor(hook.call(path, args)),
    get: (_t, name) => thenable(value, name) ?? (typeof name === "symbol" ? undefined : property(hook, [...path, name])),
    getPrototypeOf: () => RpcProperty.prototype,
    set: readOnly,
  });
}

function promiseFor(call: { hook: Hook; result: Promise<unknown> }): object {
  call.result.catch(() => {}); // who never looks at the result has chosen not to
  return new Proxy(callable(), {
    apply: (_t, _this, args) => promiseFor(call.hook.call([], args)),
    get: (_t, name) => {
      if (name === Symbol.dispose) return () => call.hook.dispose();
      return thenable(() => call.result, name) ?? (typeof name === "symbol" ? undefined : property(call.hook, [name]));
    },
    getPrototypeOf: () => RpcPromise.prototype,
    set: readOnly,
  });
}

function thenable(value: () => Promise<unknown>, name: string | symbol): unknown {
  switch (name) {
    case "then":
      return (ok: any, failed: any) => value().then(ok, failed);
    case "catch":
      return (failed: any) => value().catch(failed);
    case "finally":
      return (done: any) => value().finally(done);
  }
  return undefined;
}

// A proxy can be called only when its target is a function; a plain one has no own fields that would show through.
function callable(): any {
  const f = () => {};
  delete (f as any).name;
  delete (f as any).length;
  return f;
}

function readOnly(): never {
  throw new TypeError("A field of an RPC stub cannot be set: the object lives elsewhere.");
}

/** The hook of a stub whose object is right here. */
export class LocalHook implements Hook {
  #refs = { count: 1 };
  constructor(readonly target: object, refs?: { count: number }) {
    if (refs) this.#refs = refs;
  }

  call(path: readonly string[], args: readonly unknown[] | undefined) {
    const result = (async () => (args === undefined ? descend(this.target, path) : invoke(this.target, path, args)))();
    return { hook: new ResultHook(result), result };
  }

  dup(): Hook {
    this.#refs.count++;
    return new LocalHook(this.target, this.#refs);
  }

  dispose(): void {
    if (--this.#refs.count === 0) (this.target as any)[Symbol.dispose]?.();
  }

  onBroken(): void {}
}

/** Calls on the future result of a local call. */
class ResultHook implements Hook {
  constructor(readonly result: Promise<unknown>) {}
  call(path: readonly string[], args: readonly unknown[] | undefined) {
    const result = this.result.then((value) => (args === undefined ? descend(value, path) : invoke(value, path, args)));
    return { hook: new ResultHook(result), result };
  }
  dup(): Hook {
    return this;
  }
  dispose(): void {
    this.result.then((v: any) => v?.[Symbol.dispose]?.(), () => {});
  }
  onBroken(watcher: (error: unknown) => void): void {
    this.result.catch(watcher);
  }
}
