// Request. One that came from the host is made of four values; headers, signal and body stream come when asked for.
import { AbortSignal, createSignal, triggerSignal } from "./abort";
import { Body, Content, type Outgoing } from "./body";
import { abortError } from "./exception";
import { Headers, guardHeaders, headersOf, pairsOf } from "./headers";
import { URL, parseURL } from "./url";

const methods = new Set(("GET HEAD POST PUT DELETE PATCH OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK ACL REPORT MKACTIVITY " +
  "CHECKOUT MERGE MSEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE QUERY BAN PURGE").split(" "));
const cacheModes = new Set(["no-store", "no-cache", "reload"]);

export interface RequestInit {
  method?: string;
  headers?: unknown;
  body?: unknown;
  redirect?: string;
  cache?: string;
  signal?: AbortSignal | null;
  cf?: unknown;
  fetcher?: unknown;
  integrity?: string;
  keepalive?: boolean;
  encodeResponseBody?: string;
}

/** What the host knows of a request. */
interface HostRequest {
  method: string;
  url: string;
  headers: string[];
  body: number | ArrayBuffer; // id of its body, 0 without one; or the whole body
  cf?: () => unknown;
}

const fromHost = Symbol("from the host");
const none = new Content();

export class Request extends Body {
  #method = "GET";
  #url: string;
  #pairs: string[] | undefined; // headers, until somebody looks
  #headers: Headers | undefined;
  #content: Content = none;
  #redirect = "follow";
  #cache: string | undefined;
  #signal: AbortSignal | undefined;
  #aborted: { reason: unknown } | undefined; // came before anybody asked for the signal
  #cf: unknown;
  #lazyCf: (() => unknown) | undefined;
  #fetcher: unknown = null;

  constructor(input: unknown, init?: RequestInit, secret?: unknown) {
    super();
    if (secret === fromHost) {
      const h = input as HostRequest;
      this.#method = h.method;
      this.#url = h.url;
      this.#pairs = h.headers;
      if (h.body !== 0) this.#content = Content.ofHost(h.body);
      this.#lazyCf = h.cf;
      return;
    }
    if (arguments.length === 0) throw new TypeError("Failed to construct 'Request': constructor parameter 1 is not of type 'Request or string'.");
    this.#url = input instanceof Request ? this.#copy(input, init) : addressOf(input);
    if (init != null) this.#apply(init);
  }

  /** Takes over everything of another request that init does not replace. */
  #copy(from: Request, init: RequestInit | undefined): string {
    this.#method = from.#method;
    this.#headers = new Headers(from.headers);
    this.#redirect = from.#redirect;
    this.#cache = from.#cache;
    this.#signal = from.signal;
    this.#cf = from.cf;
    this.#fetcher = from.#fetcher;
    if (init?.body == null) this.#content = from.#content.empty ? none : from.#content.move();
    return from.#url;
  }

  #apply(init: RequestInit): void {
    if (typeof init !== "object") throw new TypeError("Failed to construct 'Request': constructor parameter 2 is not of type 'RequestInitializerDict or Request'.");
    if (init.method !== undefined) this.#method = methodOf(init.method);
    if (init.headers !== undefined) this.#headers = new Headers(init.headers);
    if (init.redirect !== undefined) this.#redirect = redirectOf(init.redirect);
    if (init.cache !== undefined) this.#cache = cacheOf(init.cache);
    if (init.signal !== undefined) {
      if (init.signal !== null && !(init.signal instanceof AbortSignal)) throw new TypeError("Incorrect type for the 'signal' field on 'RequestInitializerDict': the provided value is not of type 'AbortSignal'.");
      this.#signal = init.signal ?? createSignal();
    }
    if (init.cf !== undefined) this.#cf = init.cf;
    if (init.fetcher !== undefined) this.#fetcher = init.fetcher;
    if (init.body == null) return;
    if (this.#method === "GET" || this.#method === "HEAD") throw new TypeError("Request with a GET or HEAD method cannot have a body.");
    this.#content = Content.of(init.body);
    const type = this.#content.type;
    if (type !== undefined && !this.headers.has("content-type")) this.headers.set("content-type", type);
  }

  protected content(): Content { return this.#content; }

  get method(): string { return this.#method; }
  get url(): string { return this.#url; }

  get headers(): Headers {
    if (this.#headers) return this.#headers;
    return (this.#headers = this.#pairs ? headersOf(this.#pairs, "immutable") : new Headers());
  }

  get redirect(): string { return this.#redirect; }
  get cache(): string | undefined { return this.#cache; }
  get fetcher(): unknown { return this.#fetcher; }
  get integrity(): string { return ""; }
  get keepalive(): boolean { return false; }

  get cf(): unknown {
    if (this.#lazyCf) {
      this.#cf = this.#lazyCf();
      this.#lazyCf = undefined;
    }
    return this.#cf;
  }

  get signal(): AbortSignal {
    if (!this.#signal) {
      this.#signal = createSignal();
      if (this.#aborted) triggerSignal(this.#signal, this.#aborted.reason);
    }
    return this.#signal;
  }

  clone(): Request {
    const r = new Request(this.#url);
    const content = this.#content.clone();
    r.#copy(this, { body: "replaced" });
    r.#content = content;
    if (this.#pairs) guardHeaders(r.headers, "immutable");
    return r;
  }

  /** The host's side, hidden from user code. */
  static fromHost(h: HostRequest): Request { return new Request(h, undefined, fromHost); }

  static forHost(r: Request): OutgoingRequest {
    return {
      method: r.#method, url: r.#url, headers: r.#headers ? pairsOf(r.#headers) : (r.#pairs ?? []), length: r.#content.length,
      body: r.#content.outgoing(), redirect: r.#redirect, cache: r.#cache, cf: r.#cf, signal: r.#signal,
    };
  }

  static abort(r: Request, reason: unknown): void {
    if (r.#signal) triggerSignal(r.#signal, reason);
    else r.#aborted ??= { reason };
  }
}

export interface OutgoingRequest {
  method: string;
  url: string;
  headers: string[];
  body: Outgoing;
  length: number | undefined;
  redirect: string;
  cache: string | undefined;
  cf: unknown;
  signal: AbortSignal | undefined;
}

function addressOf(input: unknown): string {
  const text = input instanceof URL ? input.href : String(input);
  const href = parseURL(text);
  if (href === null) throw new TypeError(`Invalid URL: ${text}`);
  return href;
}

function methodOf(m: unknown): string {
  const upper = String(m).toUpperCase();
  if (!methods.has(upper)) throw new TypeError(`Invalid HTTP method string: ${String(m)}`);
  return upper;
}

function redirectOf(r: unknown): string {
  const s = String(r);
  if (s === "follow" || s === "manual") return s;
  throw new TypeError('Invalid redirect value, must be one of "follow" or "manual" ("error" won\'t be implemented since it does not make sense at the edge; use "manual" and check the response status code).');
}

function cacheOf(c: unknown): string {
  const s = String(c);
  if (!cacheModes.has(s)) throw new TypeError(`Unsupported cache mode: ${s}`);
  return s;
}

/** A request that arrived. headers is a flat list of names and values; body its bytes, or the id of its stream, 0 without one. */
export const requestFromHost = (method: string, url: string, headers: string[], body: number | ArrayBuffer, cf?: () => unknown): Request =>
  makeFromHost({ method, url, headers, body, cf });

/** Everything that the host needs to send a request; its body is used after it. */
export const requestForHost = Request.forHost;

/** The client is gone. */
export const abortRequest = (r: Request, reason: unknown = abortError()): void => abortHidden(r, reason);

const makeFromHost = Request.fromHost;
const abortHidden = Request.abort;
for (const hidden of ["fromHost", "forHost", "abort"]) delete (Request as any)[hidden];
