// EventSource: server-sent events over fetch, with reconnects; and EventSource.from(stream).
import { AbortController } from "./abort";
import { TextDecoder } from "./encoding";
import { ErrorEvent, Event, EventTarget, MessageEvent, handlerAttributes } from "./events";
import { DOMException } from "./exception";
import { fetch } from "./http";
import { ReadableStream } from "./streams";
import { URL } from "./url";

declare function setTimeout(f: () => void, ms: number): unknown;
declare function clearTimeout(id: unknown): void;

const defaultRetry = 2000;

export class EventSource extends EventTarget {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static readonly CLOSED = 2;

  #url = "";
  #state = 0;
  #stop = new AbortController();
  #fetcher: { fetch: typeof fetch } | undefined;
  #lastId = "";
  #retry = defaultRetry;
  #timer: unknown;

  constructor(url: unknown, init: { withCredentials?: boolean; fetcher?: { fetch: typeof fetch } } = {}) {
    super();
    if (url instanceof ReadableStream) return; // EventSource.from
    if (init.withCredentials) throw new DOMException("The init.withCredentials option is not supported. It must be false or undefined.", "NotSupportedError");
    const u = URL.parse(String(url));
    if (u === null) throw new DOMException(`Cannot open an EventSource to '${String(url)}'. The URL is invalid.`, "SyntaxError");
    this.#url = u.href;
    this.#fetcher = init.fetcher;
    this.#connect();
  }

  static from(stream: ReadableStream): EventSource {
    if (!(stream instanceof ReadableStream)) throw new TypeError("Failed to execute 'from' on 'EventSource': parameter 1 is not of type 'ReadableStream'.");
    const s = new EventSource(stream as never);
    s.#open(stream).then(() => { if (s.#state !== 2) s.#fail("The stream ended."); }, (e) => s.#fail(e));
    return s;
  }

  get url(): string { return this.#url; }
  get withCredentials(): boolean { return false; }
  get readyState(): number { return this.#state; }

  close(): void {
    this.#state = 2;
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  async #connect(): Promise<void> {
    const headers: Record<string, string> = { accept: "text/event-stream", "cache-control": "no-cache" };
    if (this.#lastId !== "") headers["last-event-id"] = this.#lastId;
    try {
      const init = { headers, signal: this.#stop.signal };
      const response = await (this.#fetcher ? this.#fetcher.fetch(this.#url, init) : fetch(this.#url, init));
      const type = response.headers.get("content-type") ?? "";
      if (response.status !== 200) return this.#fail(`The response status code was ${response.status}, not 200.`);
      if (!/^text\/event-stream\b/i.test(type)) return this.#fail("The content type of the response is not text/event-stream.");
      if (response.body) await this.#open(response.body);
    } catch (error) {
      if (this.#state === 2) return;
    }
    this.#again();
  }

  #fail(error: unknown): void {
    if (this.#state === 2) return;
    this.#state = 2;
    this.dispatchEvent(new ErrorEvent("error", { error: error instanceof Error ? error : new Error(String(error)) }));
  }

  #again(): void {
    if (this.#state === 2) return;
    this.#state = 0;
    this.dispatchEvent(new Event("error"));
    if (this.#state === 0) this.#timer = setTimeout(() => void this.#connect(), this.#retry);
  }

  async #open(body: ReadableStream): Promise<void> {
    this.#state = 1;
    this.dispatchEvent(new Event("open"));
    const parser = new Parser((event, data, id) => {
      if (id !== undefined) this.#lastId = id;
      if (this.#state === 1 && data !== undefined) this.dispatchEvent(new MessageEvent(event, { data, lastEventId: this.#lastId, origin: this.#url && new URL(this.#url).origin }));
    }, (ms) => { this.#retry = ms; });
    const decoder = new TextDecoder();
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#state === 2) break;
      parser.push(decoder.decode(value, { stream: true }));
    }
    if (this.#state === 2) await reader.cancel();
  }
}

handlerAttributes(EventSource, "open", "message", "error");

/** Lines to events, as the HTML standard says. */
class Parser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | undefined;
  #emit: (event: string, data: string | undefined, id: string | undefined) => void;
  #retry: (ms: number) => void;

  constructor(emit: (event: string, data: string | undefined, id: string | undefined) => void, retry: (ms: number) => void) {
    this.#emit = emit;
    this.#retry = retry;
  }

  push(text: string): void {
    this.#rest += text;
    const end = this.#rest.endsWith("\r") ? this.#rest.length - 1 : this.#rest.length; // a \n may follow
    const lines = this.#rest.slice(0, end).split(/\r\n|\n|\r/);
    this.#rest = lines.pop()! + this.#rest.slice(end);
    for (const l of lines) this.#line(l);
  }

  #line(l: string): void {
    if (l === "") return this.#end();
    const colon = l.indexOf(":");
    const field = colon < 0 ? l : l.slice(0, colon);
    const value = colon < 0 ? "" : l.slice(l[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.#retry(Number(value));
  }

  #end(): void {
    this.#emit(this.#event || "message", this.#data.length ? this.#data.join("\n") : undefined, this.#id);
    this.#event = "";
    this.#data = [];
  }
}
