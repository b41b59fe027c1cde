// What the other files of this folder agree on: things passed by reference, and the hooks behind stubs.

/** The engine of a stub: where its calls go. */
export interface Hook {
  /** Calls the method at the end of path, or reads the property there when args is undefined. */
  call(path: readonly string[], args: readonly unknown[] | undefined): { hook: Hook; result: Promise<unknown> };
  dup(): Hook;
  dispose(): void;
  onBroken(watcher: (error: unknown) => void): void;
}

/** Base class of objects that are passed by reference. */
export class RpcTarget {}

export const hooks = new WeakMap<object, Hook>();

/** The hook of a stub, or undefined for anything else. */
export function hookOf(value: object): Hook | undefined {
  return hooks.get(value);
}
