// URL. Most addresses are normal already, which one regular expression can tell; Go parses the others. An object
// keeps its serialization, in which every part can be found without knowing how it was parsed.
import { op } from "./ops";
import { URLSearchParams, bindParams } from "./urlparams";

const parse = op<string | null>("url.parse");
const assign = op<string>("url.set");

const host = String.raw`(?:(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z](?:[a-z0-9-]*[a-z0-9])?|127\.0\.0\.1)`;
const path = String.raw`(?:\/[\w~!$&()*+,;=:@%.\/-]*)`;
const after = String.raw`(?:\?[\w~!$&()*+,;=:@%.\/?-]*)?(?:#[\w~!$&()*+,;=:@%.\/?-]*)?`;
const normal = new RegExp(`^https?://${host}(:[1-9][0-9]{0,3})?(${path}${after})?$`);
const normalPath = new RegExp(`^/(?!/)[\\w~!$&()*+,;=:@%./-]*${after}$`);
const dotSegment = /\/(?:\.|%2)/;

/** The serialization of an address that needs no parser, or undefined. */
function quick(input: string): string | undefined {
  const m = normal.exec(input);
  if (m === null || input.includes("xn--")) return undefined;
  if (m[1] !== undefined && (m[1] === ":80" || m[1] === ":443")) return undefined;
  if (m[2] === undefined) return input + "/";
  return dotSegment.test(m[2]) ? undefined : input;
}

const shape = /^(https?):\/\/([a-z0-9.-]+)(?::([1-9][0-9]{0,3}))?(\/[^?#]*)?(\?[^#]*)?(#.*)?$/i;
const odd = /[\0-\x1f"<>\\^`{|}'[\]]|^ | $|%2e/i; // what is not encoded alike everywhere, or says more than it shows
const encodable = /[^\x21-\x7e]+/g;

/** What needs no more than lower case, a port dropped, dots resolved, and characters encoded; else undefined. */
function nearly(input: string): string | undefined {
  const m = shape.exec(input);
  if (m === null || odd.test(input) || !input.isWellFormed()) return undefined;
  const scheme = m[1]!.toLowerCase();
  const port = m[3] === undefined || m[3] === (scheme === "http" ? "80" : "443") ? "" : ":" + m[3];
  let path = m[4] ?? "/";
  if (path.includes("/.")) path = withoutDots(path);
  return quick(scheme + "://" + m[2]!.toLowerCase() + port + (path + (m[5] ?? "") + (m[6] ?? "")).replace(encodable, encodeURIComponent));
}

function withoutDots(path: string): string {
  const out: string[] = [];
  const segments = path.slice(1).split("/");
  segments.forEach((s, i) => {
    if (s === "..") out.pop();
    if (s !== "." && s !== "..") out.push(s);
    else if (i === segments.length - 1) out.push("");
  });
  return "/" + out.join("/");
}

/** Parses and serializes; null when it is no URL. */
export function parseURL(input: string, base?: string): string | null {
  const done = quick(input) ?? nearly(input);
  if (done !== undefined) return done;
  if (base === undefined) return parse(input);
  if (normalPath.test(input) && !dotSegment.test(input)) {
    const b = quick(base);
    if (b !== undefined) return b.slice(0, b.indexOf("/", 8)) + input;
  }
  return parse(input, base);
}

/** Where the parts of a serialization begin. */
interface Parts {
  colon: number; // after the scheme
  authority: number; // -1 without one
  hostAt: number;
  pathAt: number;
  searchAt: number;
  hashAt: number;
}

function split(href: string): Parts {
  const colon = href.indexOf(":");
  let end = href.indexOf("#", colon);
  const hashAt = end < 0 ? href.length : end;
  end = href.indexOf("?", colon);
  const searchAt = end < 0 || end > hashAt ? hashAt : end;
  if (!href.startsWith("//", colon + 1)) {
    const pathAt = href.startsWith("/.//", colon + 1) ? colon + 3 : colon + 1;
    return { colon, authority: -1, hostAt: pathAt, pathAt, searchAt, hashAt };
  }
  const authority = colon + 3;
  end = href.indexOf("/", authority);
  const pathAt = end < 0 || end > searchAt ? searchAt : end;
  const at = href.lastIndexOf("@", pathAt - 1);
  return { colon, authority, hostAt: at >= authority ? at + 1 : authority, pathAt, searchAt, hashAt };
}

const originSchemes = new Set(["http:", "https:", "ws:", "wss:", "ftp:"]);

export class URL {
  #href: string;
  #parts: Parts | undefined;
  #params: URLSearchParams | undefined;

  constructor(url: unknown, base?: unknown) {
    if (arguments.length === 0) throw new TypeError("Failed to construct 'URL': constructor parameter 1 is not of type 'USVString'.");
    const href = parseURL(String(url), base === undefined ? undefined : String(base));
    if (href === null) throw new TypeError("Invalid URL string.");
    this.#href = href;
  }

  static canParse(url: unknown, base?: unknown): boolean {
    return parseURL(String(url), base === undefined ? undefined : String(base)) !== null;
  }

  static parse(url: unknown, base?: unknown): URL | null {
    const href = parseURL(String(url), base === undefined ? undefined : String(base));
    return href === null ? null : new URL(href);
  }

  static createObjectURL(): never { throw new Error("URL.createObjectURL() is not implemented."); }
  static revokeObjectURL(): never { throw new Error("URL.revokeObjectURL() is not implemented."); }

  get #at(): Parts { return (this.#parts ??= split(this.#href)); }

  #set(part: string, value: unknown): void {
    const href = assign(this.#href, part, String(value));
    if (href === this.#href) return;
    this.#href = href;
    this.#parts = undefined;
    if (this.#params) bindParams(this.#params, this.search);
  }

  get href(): string { return this.#href; }
  set href(value: unknown) {
    const href = parseURL(String(value));
    if (href === null) throw new TypeError("Failed to set the 'href' property on 'URL': the provided value is not of type 'valid URL string'.");
    this.#href = href;
    this.#parts = undefined;
    if (this.#params) bindParams(this.#params, this.search);
  }

  get origin(): string {
    const scheme = this.protocol;
    if (originSchemes.has(scheme)) return scheme + "//" + this.host;
    if (scheme === "blob:") {
      const inner = parseURL(this.pathname);
      if (inner !== null && /^https?:/.test(inner)) return new URL(inner).origin;
    }
    return "null";
  }

  get protocol(): string { return this.#href.slice(0, this.#at.colon + 1); }
  set protocol(v: unknown) { this.#set("protocol", v); }

  get username(): string {
    const { authority, hostAt } = this.#at;
    if (authority < 0 || hostAt === authority) return "";
    const info = this.#href.slice(authority, hostAt - 1);
    const colon = info.indexOf(":");
    return colon < 0 ? info : info.slice(0, colon);
  }
  set username(v: unknown) { this.#set("username", v); }

  get password(): string {
    const { authority, hostAt } = this.#at;
    if (authority < 0 || hostAt === authority) return "";
    const info = this.#href.slice(authority, hostAt - 1);
    const colon = info.indexOf(":");
    return colon < 0 ? "" : info.slice(colon + 1);
  }
  set password(v: unknown) { this.#set("password", v); }

  get host(): string {
    const { authority, hostAt, pathAt } = this.#at;
    return authority < 0 ? "" : this.#href.slice(hostAt, pathAt);
  }
  set host(v: unknown) { this.#set("host", v); }

  get hostname(): string { return this.host.replace(/:\d*$/, ""); }
  set hostname(v: unknown) { this.#set("hostname", v); }

  get port(): string { return /:(\d+)$/.exec(this.host)?.[1] ?? ""; }
  set port(v: unknown) { this.#set("port", v); }

  get pathname(): string { return this.#href.slice(this.#at.pathAt, this.#at.searchAt); }
  set pathname(v: unknown) { this.#set("pathname", v); }

  get search(): string {
    const { searchAt, hashAt } = this.#at;
    return hashAt - searchAt > 1 ? this.#href.slice(searchAt, hashAt) : "";
  }
  set search(v: unknown) { this.#set("search", v); }

  get hash(): string {
    const { hashAt } = this.#at;
    return this.#href.length - hashAt > 1 ? this.#href.slice(hashAt) : "";
  }
  set hash(v: unknown) { this.#set("hash", v); }

  get searchParams(): URLSearchParams {
    if (!this.#params) {
      this.#params = new URLSearchParams();
      bindParams(this.#params, this.search, (query) => this.#query(query));
    }
    return this.#params;
  }

  /** Takes over a change of searchParams; its serialization needs no encoding any more. */
  #query(query: string): void {
    const { searchAt, hashAt } = this.#at;
    this.#href = this.#href.slice(0, searchAt) + (query === "" ? "" : "?" + query) + this.#href.slice(hashAt);
    this.#parts = undefined;
  }

  toString(): string { return this.#href; }
  toJSON(): string { return this.#href; }
}
