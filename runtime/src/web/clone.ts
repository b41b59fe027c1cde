// structuredClone, by way of V8's serializer.
import { deserialize, serialize } from "../host";
import { DOMException } from "./exception";

const unclonable = new WeakSet<object>();

/** Marks classes whose instances V8 would take for plain objects. */
export function neverCloned(...classes: { prototype: object }[]): void {
  for (const c of classes) unclonable.add(c.prototype);
}

const copiers = new Map<object, (value: any) => unknown>();

/** How an instance of a class is copied when it is what structuredClone was given. */
export function clonedBy(c: { prototype: object }, copy: (value: any) => unknown): void {
  copiers.set(c.prototype, copy);
}

function refuse(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  for (let p = Object.getPrototypeOf(value); p !== null; p = Object.getPrototypeOf(p)) {
    if (unclonable.has(p)) {
      const name = (p.constructor as Function).name;
      throw new DOMException(`Could not serialize object of type "${name}". This type does not support serialization.`, "DataCloneError");
    }
  }
}

/** The wire form of a value; what cannot be cloned is a DataCloneError. */
export function toWire(value: unknown): ArrayBuffer {
  refuse(value);
  try {
    return serialize(value);
  } catch (e) {
    if (e instanceof Error && !(e instanceof DOMException) && /could not be cloned\.?$|clone/.test(e.message)) throw new DOMException(e.message, "DataCloneError");
    throw e;
  }
}

export function structuredClone<T>(value: T, options?: { transfer?: unknown[] }): T {
  if (arguments.length === 0) throw new TypeError("Failed to execute 'structuredClone' on 'ServiceWorkerGlobalScope': parameter 1 is not of type 'JsValue'.");
  const transfer = [...(options?.transfer ?? [])];
  for (const t of transfer) {
    if (!(t instanceof ArrayBuffer)) throw new DOMException("Value not transferable.", "DataCloneError");
    if (t.detached) throw new DOMException("An ArrayBuffer is detached and could not be cloned.", "DataCloneError");
  }
  if (new Set(transfer).size < transfer.length) throw new DOMException("A value is listed twice in the transfer list.", "DataCloneError");
  const copier = typeof value === "object" && value !== null ? copiers.get(Object.getPrototypeOf(value)) : undefined;
  const copy = copier ? copier(value) : deserialize(toWire(value));
  for (const t of transfer as ArrayBuffer[]) t.transfer();
  return copy;
}
