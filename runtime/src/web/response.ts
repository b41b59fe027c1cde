// Response. One whose body is a string or bytes goes to the host without a stream.
import { Body, Content, type Outgoing } from "./body";
import { Headers, guardHeaders, headersOf, pairsOf } from "./headers";
import { parseURL } from "./url";

const reasons: Record<number, string> = {
  100: "Continue", 101: "Switching Protocols", 102: "Processing", 103: "Early Hints", 200: "OK", 201: "Created", 202: "Accepted",
  203: "Non-Authoritative Information", 204: "No Content", 205: "Reset Content", 206: "Partial Content", 207: "Multi-Status", 208: "Already Reported",
  226: "IM Used", 300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified", 305: "Use Proxy",
  307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden",
  404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict",
  410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Payload Too Large", 414: "URI Too Long", 415: "Unsupported Media Type",
  416: "Range Not Satisfiable", 417: "Expectation Failed", 418: "I'm a teapot", 421: "Misdirected Request", 422: "Unprocessable Entity", 423: "Locked",
  424: "Failed Dependency", 425: "Too Early", 426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests",
  431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
  503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported", 506: "Variant Also Negotiates", 507: "Insufficient Storage",
  508: "Loop Detected", 510: "Not Extended", 511: "Network Authentication Required",
};

const nullBody = new Set([101, 204, 205, 304]);
const redirects = new Set([301, 302, 303, 307, 308]);
const none = new Content();

export interface ResponseInit {
  status?: number;
  statusText?: string;
  headers?: unknown;
  webSocket?: unknown;
  cf?: unknown;
  encodeBody?: string;
}

interface HostResponse {
  status: number;
  statusText: string;
  headers: string[];
  body: number | ArrayBuffer;
  url: string;
  redirected: boolean;
  webSocket: unknown;
}

export interface OutgoingResponse {
  status: number;
  statusText: string;
  headers: string[];
  body: Outgoing;
  length: number | undefined;
  webSocket: unknown;
  encodeBody: string;
}

const fromHost = Symbol("from the host");

export class Response extends Body {
  #status = 200;
  #statusText: string | undefined;
  #pairs: string[] | undefined;
  #headers: Headers | undefined;
  #content: Content = none;
  #type = "default";
  #url = "";
  #redirected = false;
  #webSocket: unknown = null;
  #cf: unknown;
  #encodeBody = "automatic";

  constructor(body?: unknown, init?: ResponseInit | Response, secret?: unknown) {
    super();
    if (secret === fromHost) return this.#fromHost(body as HostResponse), this;
    if (init != null) this.#apply(init);
    if (body == null) return;
    if (nullBody.has(this.#status)) throw new TypeError("Response with null body status (101, 204, 205, or 304) cannot have a body.");
    this.#content = Content.of(body);
    const type = this.#content.type;
    if (type === undefined) return;
    if (this.#headers === undefined) this.#pairs = ["content-type", type];
    else if (!this.#headers.has("content-type")) this.#headers.set("content-type", type);
  }

  #fromHost(h: HostResponse): void {
    this.#status = h.status;
    this.#statusText = h.statusText || undefined;
    this.#pairs = h.headers;
    if (h.body !== 0) this.#content = Content.ofHost(h.body);
    this.#url = h.url;
    this.#redirected = h.redirected;
    this.#webSocket = h.webSocket ?? null;
    guardLater.add(this);
  }

  #apply(init: ResponseInit | Response): void {
    if (typeof init !== "object") throw new TypeError("Failed to construct 'Response': constructor parameter 2 is not of type 'InitializerDict or Response'.");
    if (init.webSocket != null) this.#webSocket = init.webSocket;
    if (init.status !== undefined) this.#status = this.#checkStatus(init.status);
    if (init.statusText !== undefined && !(init instanceof Response && init.#statusText === undefined)) {
      const text = String(init.statusText);
      if (/[^\t\x20-\x7e\x80-\xff]/.test(text)) throw new TypeError("Invalid statusText");
      this.#statusText = text;
    }
    if (init.headers !== undefined) this.#headers = new Headers(init.headers);
    if (init.cf !== undefined) this.#cf = init.cf;
    const encode = (init as ResponseInit).encodeBody;
    if (encode === undefined) return;
    if (encode !== "automatic" && encode !== "manual") throw new TypeError(`encodeBody: unexpected value: ${encode}`);
    this.#encodeBody = encode;
  }

  #checkStatus(status: unknown): number {
    const n = Number(status);
    if (n === 101 && this.#webSocket !== null) return n;
    if (Number.isInteger(n) && n >= 200 && n <= 599) {
      if (this.#webSocket !== null) throw new RangeError("Responses with a WebSocket must have status code 101.");
      return n;
    }
    throw new RangeError("Responses may only be constructed with status codes in the range 200 to 599, inclusive.");
  }

  protected content(): Content { return this.#content; }

  get status(): number { return this.#status; }
  get statusText(): string { return this.#statusText ?? reasons[this.#status] ?? ""; }
  get ok(): boolean { return this.#status >= 200 && this.#status < 300; }
  get type(): string { return this.#type; }
  get url(): string { return this.#url; }
  get redirected(): boolean { return this.#redirected; }
  get webSocket(): unknown { return this.#webSocket; }
  get cf(): unknown { return this.#cf; }

  get headers(): Headers {
    if (this.#headers) return this.#headers;
    return (this.#headers = this.#pairs ? headersOf(this.#pairs, guardLater.has(this) ? "immutable" : "none") : new Headers());
  }

  clone(): Response {
    if (this.#webSocket !== null) throw new TypeError("Cannot clone a response to a WebSocket handshake.");
    const content = this.#content.clone();
    const r = new Response(null, { headers: this.headers });
    if (guardLater.has(this)) guardHeaders(r.headers, "immutable");
    r.#status = this.#status;
    r.#statusText = this.#statusText;
    r.#type = this.#type;
    r.#url = this.#url;
    r.#redirected = this.#redirected;
    r.#cf = this.#cf;
    r.#encodeBody = this.#encodeBody;
    r.#content = content;
    return r;
  }

  static error(): Response {
    const r = new Response();
    r.#type = "error";
    r.#status = 0;
    r.#statusText = "";
    return r;
  }

  static redirect(url: unknown, status = 302): Response {
    const href = parseURL(String(url));
    if (href === null) throw new TypeError(`Unable to parse URL: ${String(url)}`);
    if (!redirects.has(Number(status))) throw new RangeError(`${status} is not a redirect status code. It must be one of: 301, 302, 303, 307, or 308.`);
    const r = new Response(null, { status, headers: { location: href } });
    guardHeaders(r.headers, "immutable");
    return r;
  }

  static json(value: unknown, init?: ResponseInit): Response {
    const r = new Response(String(JSON.stringify(value)), init);
    if (!r.#headers) r.#pairs = ["content-type", "application/json"];
    else if (!hadType(init)) r.#headers.set("content-type", "application/json");
    return r;
  }

  /** The host's side, hidden from user code. */
  static forHost(r: Response): OutgoingResponse {
    if (r.#type === "error") throw new TypeError("A Response made by Response.error() cannot be sent.");
    return {
      status: r.#status, statusText: r.statusText, headers: r.#headers ? pairsOf(r.#headers) : (r.#pairs ?? []), length: r.#content.length,
      body: r.#content.outgoing(), webSocket: r.#webSocket, encodeBody: r.#encodeBody,
    };
  }
}

const guardLater = new WeakSet<Response>(); // responses of the host have immutable headers

function hadType(init: ResponseInit | undefined): boolean {
  return init?.headers !== undefined && new Headers(init.headers).has("content-type");
}

/** A response that arrived for a request of ours. */
export const responseFromHost = (status: number, statusText: string, headers: string[], body: number | ArrayBuffer, url = "", redirected = false, webSocket: unknown = null): Response =>
  new Response({ status, statusText, headers, body, url, redirected, webSocket } satisfies HostResponse, undefined, fromHost);

/** Everything that the host needs to answer with r; its body is used after it. */
export const responseForHost = Response.forHost;
delete (Response as any).forHost;
