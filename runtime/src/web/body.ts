// What Request and Response share: a body that becomes a stream only when somebody asks for one.
import { bufferOf, copyOf, decodeUTF8, encodeUTF8, isBufferSource } from "./bytes";
import { Blob, blobBytes } from "./blob";
import { FormData, parseFormBody, toMultipart } from "./formdata";
import type { Headers } from "./headers";
import { ReadableStream, bytesOf, bytesStream, hostStream, isDisturbed, lengthOf, readAll } from "./streams";
import { URLSearchParams } from "./urlparams";

const usedUp = "Body has already been used. It can only be used once. Use tee() first if you need to read it twice.";

/** A body in the form in which it leaves for the host. */
export type Outgoing = null | string | Uint8Array | ReadableStream;

export class Content {
  #data: string | Uint8Array | null = null; // what is here already
  #host = 0; // or a body that Go holds
  #stream: ReadableStream | undefined; // or a stream, made on demand from either
  #used = false;
  type: string | undefined; // Content-Type that the value brings

  /** From what a constructor was given; null and undefined mean no body. */
  static of(value: unknown): Content {
    const c = new Content();
    if (value == null) return c;
    if (typeof value === "string") c.#text(value);
    else if (value instanceof ReadableStream) c.#take(value);
    else if (isBufferSource(value)) c.#data = copyOf(value);
    else if (value instanceof Blob) {
      c.#data = blobBytes(value);
      if (value.type) c.type = value.type;
    } else if (value instanceof URLSearchParams) {
      c.#data = value.toString();
      c.type = "application/x-www-form-urlencoded;charset=UTF-8";
    } else if (value instanceof FormData) {
      const boundary = newBoundary();
      c.#data = toMultipart(value, boundary);
      c.type = `multipart/form-data; boundary=${boundary}`;
    } else c.#text(String(value));
    return c;
  }

  /** What the host brought: all bytes, or the id of a stream that it holds. */
  static ofHost(body: number | ArrayBuffer): Content {
    const c = new Content();
    if (typeof body === "number") c.#host = body;
    else c.#data = new Uint8Array(body);
    return c;
  }

  #text(s: string): void {
    this.#data = s;
    this.type = "text/plain;charset=UTF-8";
  }

  #take(s: ReadableStream): void {
    if (isDisturbed(s)) throw new TypeError("This ReadableStream is disturbed (has already been read from), and cannot be used as a body.");
    if (s.locked) throw new TypeError("This ReadableStream is currently locked to a reader.");
    this.#stream = s;
  }

  get empty(): boolean { return this.#data === null && this.#host === 0 && this.#stream === undefined; }
  get used(): boolean { return this.#used || (this.#stream !== undefined && isDisturbed(this.#stream)); }

  get stream(): ReadableStream | null {
    if (this.empty) return null;
    if (this.#stream) return this.#stream;
    this.#stream = this.#host ? hostStream(this.#host) : bytesStream(this.#bytes());
    if (this.#used) this.#stream.getReader().cancel();
    return this.#stream;
  }

  #bytes(): Uint8Array { return typeof this.#data === "string" ? encodeUTF8(this.#data) : this.#data!; }

  #claim(): void {
    if (this.used) throw new TypeError(usedUp);
    if (this.#stream?.locked) throw new TypeError("This ReadableStream is currently locked to a reader.");
    if (!this.empty) this.#used = true;
  }

  /** All bytes. The caller may keep and change them. */
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    this.#claim();
    if (this.empty) return new Uint8Array(0);
    if (this.#stream) return readAll(this.#stream);
    if (this.#host) return readAll((this.#stream = hostStream(this.#host)));
    return typeof this.#data === "string" ? encodeUTF8(this.#data) : copyOf(this.#data!);
  }

  async text(): Promise<string> {
    if (typeof this.#data !== "string" || this.#stream) return decodeUTF8(await this.bytes());
    this.#claim();
    const s = this.#data.toWellFormed();
    return s.charCodeAt(0) === 0xfeff ? s.slice(1) : s;
  }

  /** Two bodies of one; this one goes on as the first. */
  clone(): Content {
    if (this.used) throw new TypeError(this.#used ? "This ReadableStream is currently locked to a reader," : usedUp);
    if (this.#stream?.locked) throw new TypeError("This ReadableStream is currently locked to a reader,");
    const c = new Content();
    c.type = this.type;
    if (this.empty) return c;
    if (!this.#stream && !this.#host) {
      c.#data = this.#data;
      return c;
    }
    [this.#stream, c.#stream] = this.stream!.tee();
    this.#host = 0;
    this.#data = null;
    return c;
  }

  /** Moves the body to another owner; this one counts as used. */
  move(): Content {
    if (this.used) throw new TypeError(usedUp);
    if (this.#stream?.locked) throw new TypeError("This ReadableStream is currently locked to a reader.");
    const c = new Content();
    c.type = this.type;
    c.#data = this.#data;
    c.#host = this.#host;
    c.#stream = this.#stream;
    if (this.empty) return c;
    this.#stream = bytesStream(new Uint8Array(0));
    this.#data = null;
    this.#host = 0;
    this.#used = true;
    this.#stream.getReader();
    return c;
  }

  /** The cheapest form for the host; the body is used after it. */
  outgoing(): Outgoing {
    if (this.empty) return null;
    this.#claim();
    if (!this.#stream) return this.#host ? (this.#stream = hostStream(this.#host)) : this.#data;
    const bytes = bytesOf(this.#stream);
    if (bytes === undefined) return this.#stream;
    this.#stream.getReader(); // nobody reads it any more
    return bytes;
  }

  /** The length when it is known. */
  get length(): number | undefined {
    if (this.#stream) return lengthOf(this.#stream);
    if (this.#data instanceof Uint8Array) return this.#data.length;
    return undefined;
  }
}

function newBoundary(): string {
  let s = "";
  for (let i = 0; i < 4; i++) s += Math.floor(Math.random() * 0x100000000).toString(16).padStart(8, "0");
  return s;
}

/** The methods of the Body mixin. A subclass says where its content and headers are. */
export abstract class Body {
  protected abstract content(): Content;
  abstract get headers(): Headers;

  get body(): ReadableStream | null { return this.content().stream; }
  get bodyUsed(): boolean { return this.content().used; }
  async arrayBuffer(): Promise<ArrayBuffer> { return bufferOf(await this.content().bytes()); }
  async bytes(): Promise<Uint8Array> { return this.content().bytes(); }
  async text(): Promise<string> { return this.content().text(); }
  async json(): Promise<unknown> { return JSON.parse(await this.content().text()); }

  async blob(): Promise<Blob> {
    const type = this.headers.get("content-type") ?? "";
    return new Blob([await this.content().bytes()], { type });
  }

  async formData(): Promise<FormData> {
    const type = this.headers.get("content-type");
    return parseFormBody(await this.content().bytes(), type);
  }
}
