// Turns values into bytes and back for one RPC session. V8's structured clone does the work; what it cannot carry
// (stubs, functions, streams, errors with their own fields) is taken out first. In its place stands an empty object, a
// marker, and a side table says what each marker means. Structured clone keeps identity, so the receiver finds the
// markers again without any reserved names that user data could forge.

import { DOMException } from "../web/exception";

/** What replaces one special value: its kind and the data that crosses for it. */
export type Special = [kind: string, data: unknown];

/** A kind of value that structured clone alone does not carry. */
export interface Kind {
  name: string;
  /** Data that crosses for `value`, or undefined when the value is of another kind. */
  encode(value: object, encoder: Encoder): unknown;
  decode(data: any, decoder: Decoder): unknown;
}

export interface Clone {
  serialize(value: unknown): ArrayBuffer;
  deserialize(bytes: ArrayBuffer): any;
}

/** The longest serialized arguments or result, as on the platform. */
export const maxMessage = 32 << 20;

/** How deep values may nest; beyond it the value is refused instead of overflowing the stack. */
const maxDepth = 1000;

const plain = Object.prototype;

/** Built-in classes that structured clone carries whole, without looking inside. */
const opaque = new Set<string>([
  "Date", "RegExp", "ArrayBuffer", "SharedArrayBuffer", "DataView", "Boolean", "Number", "String", "BigInt",
  "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
  "Float16Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array",
]);

/** Built-in classes that it refuses in words of its own. */
const native = new Set<string>(["WeakMap", "WeakSet", "WeakRef", "Promise", "Generator", "AsyncGenerator", "FinalizationRegistry"]);

export function dataCloneError(message: string): Error {
  return new DOMException(message, "DataCloneError");
}

function notSerializable(name: string): Error {
  return dataCloneError(`Could not serialize object of type "${name}". This type does not support serialization.`);
}

export class Encoder {
  readonly #kinds: readonly Kind[];
  readonly #table: [marker: object, ...Special][] = [];
  readonly #seen = new Map<object, unknown>();

  constructor(kinds: readonly Kind[]) {
    this.#kinds = kinds;
  }

  /** The value and its table as one clonable value. */
  pack(value: unknown): unknown {
    const body = this.walk(value, 0);
    return this.#table.length === 0 ? [body] : [body, this.#table];
  }

  /** A copy of value in which every special stands replaced; value itself when it holds none. */
  walk(value: unknown, depth: number): unknown {
    if (typeof value === "symbol") throw dataCloneError(`${String(value)} could not be cloned.`);
    if (value === null || (typeof value !== "object" && typeof value !== "function")) return value;
    if (depth > maxDepth) throw dataCloneError(`The value nests deeper than ${maxDepth} levels.`);
    const known = this.#seen.get(value);
    if (known !== undefined) return known;
    for (const kind of this.#kinds) {
      const data = kind.encode(value, this);
      if (data !== undefined) return this.#mark(value, kind.name, data);
    }
    return this.#walkObject(value, depth);
  }

  #mark(value: object, kind: string, data: unknown): object {
    const marker = {};
    this.#seen.set(value, marker);
    this.#table.push([marker, kind, data]);
    return marker;
  }

  #walkObject(value: object, depth: number): unknown {
    if (Array.isArray(value)) return this.#walkArray(value, depth);
    const proto = Object.getPrototypeOf(value);
    if (proto === plain) return this.#walkFields(value, depth);
    if (proto === null) throw notSerializable("Object");
    if (value instanceof Map) return this.#walkMap(value, depth);
    if (value instanceof Set) return this.#walkSet(value, depth);
    const tag = Object.prototype.toString.call(value).slice(8, -1);
    if (native.has(tag)) throw dataCloneError(`#<${tag}> could not be cloned.`);
    if (!opaque.has(tag) || typeof value === "function") throw notSerializable(proto?.constructor?.name || tag);
    this.#seen.set(value, value);
    return value;
  }

  // Containers are copied always: whether a copy is needed is known only after the walk, and by then a cycle may point at it.
  #walkArray(value: unknown[], depth: number): unknown[] {
    const copy: unknown[] = new Array(value.length);
    this.#seen.set(value, copy);
    for (const key of Object.keys(value)) copy[key as any] = this.walk(value[key as any], depth + 1);
    return copy;
  }

  #walkFields(value: object, depth: number): object {
    const copy: Record<string, unknown> = {};
    this.#seen.set(value, copy);
    for (const key of Object.keys(value)) define(copy, key, this.walk((value as any)[key], depth + 1));
    return copy;
  }

  #walkMap(value: Map<unknown, unknown>, depth: number): Map<unknown, unknown> {
    const copy = new Map();
    this.#seen.set(value, copy);
    for (const [k, v] of value) copy.set(this.walk(k, depth + 1), this.walk(v, depth + 1));
    return copy;
  }

  #walkSet(value: Set<unknown>, depth: number): Set<unknown> {
    const copy = new Set();
    this.#seen.set(value, copy);
    for (const v of value) copy.add(this.walk(v, depth + 1));
    return copy;
  }
}

// A field named __proto__ must stay a field.
function define(target: object, key: string, value: unknown): void {
  if (key === "__proto__") Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
  else (target as any)[key] = value;
}

export class Decoder {
  readonly #kinds: ReadonlyMap<string, Kind>;
  readonly #revived = new Map<object, unknown>();
  readonly #seen = new Set<object>();

  constructor(kinds: ReadonlyMap<string, Kind>) {
    this.#kinds = kinds;
  }

  unpack(packed: any): unknown {
    const [body, table] = packed as [unknown, [object, string, unknown][] | undefined];
    if (table === undefined) return body;
    for (const [marker, name, data] of table) {
      const kind = this.#kinds.get(name);
      if (kind === undefined) throw new TypeError(`The peer sent a value of the unknown kind "${name}".`);
      this.#revived.set(marker, kind.decode(this.replace(data), this));
    }
    return this.replace(body);
  }

  /** value with every marker replaced, in place. */
  replace(value: unknown): unknown {
    if (value === null || typeof value !== "object") return value;
    if (this.#revived.has(value)) return this.#revived.get(value);
    if (this.#seen.has(value)) return value;
    this.#seen.add(value);
    if (Array.isArray(value) || Object.getPrototypeOf(value) === plain) {
      for (const key of Object.keys(value)) {
        const old = (value as any)[key];
        const now = this.replace(old);
        if (now !== old) define(value, key, now);
      }
    } else if (value instanceof Map) {
      const entries = [...value];
      value.clear();
      for (const [k, v] of entries) value.set(this.replace(k), this.replace(v));
    } else if (value instanceof Set) {
      const items = [...value];
      value.clear();
      for (const v of items) value.add(this.replace(v));
    }
    return value;
  }
}

/** Bytes of a packed value, refused above the limit. */
export function toBytes(clone: Clone, packed: unknown): ArrayBuffer {
  const bytes = clone.serialize(packed);
  if (bytes.byteLength > maxMessage) {
    throw new Error(
      `Serialized RPC arguments or return values are limited to 32MiB, but the size of this value was: ${bytes.byteLength} bytes.`,
    );
  }
  return bytes;
}

const errorClasses: Record<string, ErrorConstructor> = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError } as any;

/** Errors keep class, message, stack, cause and their own fields; what cannot cross of the fields is left out. */
export const errorKind: Kind = {
  name: "error",
  encode(value, encoder) {
    if (!(value instanceof Error)) return undefined;
    const own: Record<string, unknown> = {};
    for (const key of Object.keys(value)) {
      try {
        own[key] = encoder.walk((value as any)[key], 1);
      } catch {
        // A field that cannot cross must not hide the error itself.
      }
    }
    const cause = Object.hasOwn(value, "cause") ? attempt(() => encoder.walk((value as any).cause, 1)) : undefined;
    const dom = value instanceof DOMException;
    return { name: value.name, message: value.message, stack: value.stack, own, cause, dom };
  },
  decode(data) {
    const error = data.dom ? new DOMException(data.message, data.name) : new (errorClasses[data.name] ?? Error)(data.message);
    if (!data.dom && error.name !== data.name) error.name = data.name;
    hidden(error, "stack", data.stack);
    if (data.cause !== undefined) hidden(error, "cause", data.cause);
    for (const key of Object.keys(data.own)) define(error, key, data.own[key]);
    return error;
  },
};

function attempt<T>(f: () => T): T | undefined {
  try {
    return f();
  } catch {
    return undefined;
  }
}

function hidden(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: true, configurable: true, enumerable: false });
}
