// Headers: an ordered list by lower-case name, made from the host's pairs only when somebody looks.

type Pairs = string[]; // name, value, name, value, …

const tokenPattern = /^[!#$%&'*+\-.^_`|~0-9A-Za-z\x80-\uffff]+$/; // as workerd: names beyond ASCII pass
const badValue = /[\0\r\n]/;
const padding = /^[\t\n\r ]+|[\t\n\r ]+$/g;

function nameOf(name: unknown): string {
  const s = String(name);
  if (s !== "" && !tokenPattern.test(s)) throw new TypeError("Invalid header name.");
  return s.toLowerCase();
}

function valueOf(value: unknown): string {
  const s = String(value).replace(padding, "");
  if (badValue.test(s)) throw new TypeError("Invalid header value.");
  return s;
}

type Guard = "none" | "immutable";

export class Headers {
  #map = new Map<string, string[]>();
  #guard: Guard = "none";

  constructor(init?: unknown) {
    if (init === undefined) return;
    if (init === null || typeof init !== "object") throw new TypeError("Failed to construct 'Headers': constructor parameter 1 is not of type 'Headers or Sequence or object'.");
    if (init instanceof Headers) for (const [k, v] of init.#map) this.#map.set(k, v.slice());
    else if (typeof (init as any)[Symbol.iterator] === "function") this.#fromSequence(init as Iterable<Iterable<unknown>>);
    else for (const [k, v] of Object.entries(init)) this.#add(nameOf(k), valueOf(v));
  }

  #fromSequence(init: Iterable<Iterable<unknown>>): void {
    for (const p of init) {
      const pair = [...p];
      if (pair.length !== 2) throw new TypeError("To initialize a Headers object from a sequence, each inner sequence must have exactly two elements.");
      this.#add(nameOf(pair[0]), valueOf(pair[1]));
    }
  }

  #add(name: string, value: string): void {
    const have = this.#map.get(name);
    if (have) have.push(value);
    else this.#map.set(name, [value]);
  }

  /** Builds from and reads as the flat list that crosses to Go; both are hidden from user code. */
  static of(pairs: Pairs, guard: Guard = "none"): Headers {
    const h = new Headers();
    for (let i = 0; i + 1 < pairs.length; i += 2) h.#add(pairs[i]!.toLowerCase(), pairs[i + 1]!);
    h.#guard = guard;
    return h;
  }

  static pairs(h: Headers): Pairs {
    const out: Pairs = [];
    for (const [k, values] of h.#map) for (const v of values) out.push(k, v);
    return out;
  }

  static guard(h: Headers, guard: Guard): void { h.#guard = guard; }

  #mutable(): void {
    if (this.#guard === "immutable") throw new TypeError("Can't modify immutable headers.");
  }

  append(name: string, value: string): void {
    const [k, v] = [nameOf(name), valueOf(value)];
    this.#mutable();
    this.#add(k, v);
  }

  set(name: string, value: string): void {
    const [k, v] = [nameOf(name), valueOf(value)];
    this.#mutable();
    this.#map.set(k, [v]);
  }

  delete(name: string): void {
    const k = nameOf(name);
    this.#mutable();
    this.#map.delete(k);
  }

  get(name: string): string | null { return this.#map.get(nameOf(name))?.join(", ") ?? null; }
  has(name: string): boolean { return this.#map.has(nameOf(name)); }
  getSetCookie(): string[] { return this.#map.get("set-cookie")?.slice() ?? []; }

  /** workerd's older name for getSetCookie. */
  getAll(name: string): string[] {
    if (nameOf(name) !== "set-cookie") throw new TypeError('getAll() can only be used with the header name "Set-Cookie".');
    return this.getSetCookie();
  }

  #sorted(): [string, string][] {
    const out: [string, string][] = [];
    for (const k of [...this.#map.keys()].sort()) {
      const values = this.#map.get(k)!;
      if (k === "set-cookie") for (const v of values) out.push([k, v]);
      else out.push([k, values.join(", ")]);
    }
    return out;
  }

  forEach(f: (value: string, name: string, headers: Headers) => void, self?: unknown): void {
    if (typeof f !== "function") throw new TypeError("Failed to execute 'forEach' on 'Headers': parameter 1 is not of type 'Function'.");
    for (const [k, v] of this.#sorted()) f.call(self, v, k, this);
  }

  // Iterators see the headers as they were when the iteration began.
  entries(): IterableIterator<[string, string]> { return this.#sorted()[Symbol.iterator](); }
  keys(): IterableIterator<string> { return this.#sorted().map((p) => p[0])[Symbol.iterator](); }
  values(): IterableIterator<string> { return this.#sorted().map((p) => p[1])[Symbol.iterator](); }
  [Symbol.iterator](): IterableIterator<[string, string]> { return this.entries(); }
}

export const headersOf = Headers.of;
export const pairsOf = Headers.pairs;
export const guardHeaders = Headers.guard;
for (const hidden of ["of", "pairs", "guard"]) delete (Headers as any)[hidden];
