// URLSearchParams, and application/x-www-form-urlencoded.
import { decodeUTF8KeepBOM, encodeUTF8 } from "./bytes";

type Pair = [string, string];
const plain = /^[\w*.-]*$/;

function encode(s: string): string {
  if (plain.test(s)) return s;
  return encodeURIComponent(s.toWellFormed()).replace(/[!'()~]|%20/g, (c) => (c === "%20" ? "+" : "%" + c.charCodeAt(0).toString(16).toUpperCase()));
}

function decode(s: string): string {
  if (s.includes("+")) s = s.replaceAll("+", " ");
  if (!s.includes("%")) return s.toWellFormed();
  try {
    return decodeURIComponent(s).toWellFormed();
  } catch {
    return decodeUTF8KeepBOM(percentDecode(encodeUTF8(s)));
  }
}

function percentDecode(b: Uint8Array): Uint8Array {
  const out = new Uint8Array(b.length);
  let n = 0;
  for (let i = 0; i < b.length; i++) {
    const v = b[i] === 0x25 ? hex(b[i + 1]) * 16 + hex(b[i + 2]) : NaN;
    if (Number.isNaN(v)) out[n++] = b[i]!;
    else {
      out[n++] = v;
      i += 2;
    }
  }
  return out.subarray(0, n);
}

function hex(c: number | undefined): number {
  if (c === undefined) return NaN;
  if (c >= 48 && c <= 57) return c - 48;
  c |= 32;
  return c >= 97 && c <= 102 ? c - 87 : NaN;
}

export function parseForm(query: string): Pair[] {
  const out: Pair[] = [];
  if (query === "") return out;
  for (const part of query.split("&")) {
    if (part === "") continue;
    const eq = part.indexOf("=");
    out.push(eq < 0 ? [decode(part), ""] : [decode(part.slice(0, eq)), decode(part.slice(eq + 1))]);
  }
  return out;
}

export function serializeForm(list: Iterable<readonly [string, string]>): string {
  let s = "";
  for (const [k, v] of list) s += (s === "" ? "" : "&") + encode(k) + "=" + encode(v);
  return s;
}

const withoutMark = (s: string) => (s[0] === "?" ? s.slice(1) : s);

function need(n: number, given: number, method: string): void {
  if (given < n) throw new TypeError(`Failed to execute '${method}' on 'URLSearchParams': ${n} argument${n > 1 ? "s" : ""} required, but only ${given} present.`);
}

export class URLSearchParams {
  #list: Pair[] = [];
  #changed: ((query: string) => void) | undefined;

  constructor(init: unknown = "") {
    if (typeof init === "object" && init !== null) this.#list = pairsOf(init);
    else this.#list = parseForm(withoutMark(String(init)));
  }

  /** Ties an object to the URL that it belongs to. */
  static tie(p: URLSearchParams, search: string, changed?: (query: string) => void): void {
    p.#list = parseForm(withoutMark(search));
    if (changed) p.#changed = changed;
  }

  #update(): void { this.#changed?.(this.toString()); }

  get size(): number { return this.#list.length; }

  append(name: string, value: string): void {
    need(2, arguments.length, "append");
    this.#list.push([String(name).toWellFormed(), String(value).toWellFormed()]);
    this.#update();
  }

  delete(name: string, value?: string): void {
    need(1, arguments.length, "delete");
    const [k, v] = [String(name), value === undefined ? undefined : String(value)];
    this.#list = this.#list.filter((p) => p[0] !== k || (v !== undefined && p[1] !== v));
    this.#update();
  }

  get(name: string): string | null {
    need(1, arguments.length, "get");
    const k = String(name);
    return this.#list.find((p) => p[0] === k)?.[1] ?? null;
  }

  getAll(name: string): string[] {
    need(1, arguments.length, "getAll");
    const k = String(name);
    return this.#list.filter((p) => p[0] === k).map((p) => p[1]);
  }

  has(name: string, value?: string): boolean {
    need(1, arguments.length, "has");
    const [k, v] = [String(name), value === undefined ? undefined : String(value)];
    return this.#list.some((p) => p[0] === k && (v === undefined || p[1] === v));
  }

  set(name: string, value: string): void {
    need(2, arguments.length, "set");
    const k = String(name).toWellFormed();
    const v = String(value).toWellFormed();
    const first = this.#list.find((p) => p[0] === k);
    if (first) first[1] = v;
    else this.#list.push([k, v]);
    if (first) this.#list = this.#list.filter((p) => p === first || p[0] !== k);
    this.#update();
  }

  sort(): void {
    this.#list.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
    this.#update();
  }

  forEach(f: (value: string, name: string, params: URLSearchParams) => void, self?: unknown): void {
    if (typeof f !== "function") throw new TypeError("Failed to execute 'forEach' on 'URLSearchParams': parameter 1 is not of type 'Function'.");
    for (let i = 0; i < this.#list.length; i++) f.call(self, this.#list[i]![1], this.#list[i]![0], this);
  }

  *entries(): IterableIterator<Pair> { for (let i = 0; i < this.#list.length; i++) yield [this.#list[i]![0], this.#list[i]![1]]; }
  *keys(): IterableIterator<string> { for (let i = 0; i < this.#list.length; i++) yield this.#list[i]![0]; }
  *values(): IterableIterator<string> { for (let i = 0; i < this.#list.length; i++) yield this.#list[i]![1]; }
  [Symbol.iterator](): IterableIterator<Pair> { return this.entries(); }

  toString(): string { return serializeForm(this.#list); }
}

function pairsOf(init: object): Pair[] {
  const iterate = (init as { [Symbol.iterator]?: unknown })[Symbol.iterator];
  if (iterate == null) return Object.entries(init).map(([k, v]) => [k.toWellFormed(), String(v).toWellFormed()]);
  if (typeof iterate !== "function") throw new TypeError("The Symbol.iterator property of the init object is not a function.");
  return Array.from(init as Iterable<Iterable<unknown>>, (p) => {
    const pair = [...p];
    if (pair.length !== 2) throw new TypeError("Invalid URL search params sequence.");
    return [String(pair[0]).toWellFormed(), String(pair[1]).toWellFormed()];
  });
}

export const bindParams = URLSearchParams.tie;
delete (URLSearchParams as { tie?: unknown }).tie;
