// The streams of web-streams-polyfill, with what workerd adds and says differently, and streams of bytes for bodies.
import {
  ByteLengthQueuingStrategy, CountQueuingStrategy, ReadableByteStreamController, ReadableStream, ReadableStreamBYOBReader, ReadableStreamBYOBRequest,
  ReadableStreamDefaultController, ReadableStreamDefaultReader, TransformStream, TransformStreamDefaultController, WritableStream,
  WritableStreamDefaultController, WritableStreamDefaultWriter,
} from "web-streams-polyfill";
import { type BufferSource, concat, copyOf, encodeUTF8, isBufferSource, viewOf } from "./bytes";
import { job, op } from "./ops";

export {
  ByteLengthQueuingStrategy, CountQueuingStrategy, ReadableByteStreamController, ReadableStream, ReadableStreamBYOBReader, ReadableStreamBYOBRequest,
  ReadableStreamDefaultController, ReadableStreamDefaultReader, TransformStream, TransformStreamDefaultController, WritableStream,
  WritableStreamDefaultController, WritableStreamDefaultWriter,
};

const readHost = job<ArrayBuffer | null>("body.read");
const cancelHost = op<void>("body.cancel");

export const notBytes = "This ReadableStream did not return bytes.";

/** The polyfill keeps its state in properties; these two are all we read of it. */
interface Inside {
  _disturbed: boolean;
  _readableStreamController: unknown;
}

export function isDisturbed(s: ReadableStream): boolean {
  return (s as unknown as Inside)._disturbed;
}

export function isByteStream(s: ReadableStream): boolean {
  return (s as unknown as Inside)._readableStreamController instanceof ReadableByteStreamController;
}

// ---- streams that the platform makes

const whole = new WeakMap<ReadableStream, Uint8Array>();

/** Everything that an untouched stream will give, when that is here already. */
export function bytesOf(s: ReadableStream): Uint8Array | undefined {
  return isDisturbed(s) || s.locked ? undefined : whole.get(s);
}

/** A byte stream over bytes that are here. */
export function bytesStream(bytes: Uint8Array): ReadableStream<Uint8Array> {
  const s = new ReadableStream<Uint8Array>({
    type: "bytes",
    pull(c) {
      if (bytes.length > 0) c.enqueue(copyOf(bytes)); // the reader may transfer what it gets
      c.close();
      c.byobRequest?.respond(0);
    },
  }, { highWaterMark: 0 });
  whole.set(s, bytes);
  return s;
}

/** The stream of a body that Go holds. */
export function hostStream(id: number): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    type: "bytes",
    async pull(c) {
      const chunk = await readHost(id);
      if (chunk === null) {
        c.close();
        c.byobRequest?.respond(0);
      } else if (chunk.byteLength > 0) {
        c.enqueue(new Uint8Array(chunk));
      }
    },
    cancel() { cancelHost(id); },
  }, { highWaterMark: 0 });
}

/** Everything that a stream has to give, as bytes. */
export async function readAll(s: ReadableStream): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = bytesOf(s);
  if (bytes) {
    await s.cancel();
    return copyOf(bytes);
  }
  const reader = s.getReader();
  const chunks: Uint8Array[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return concat(chunks);
    if (!isBufferSource(value)) {
      const e = new TypeError(notBytes);
      reader.cancel(e).catch(() => {});
      throw e;
    }
    chunks.push(viewOf(value));
  }
}

// ---- what workerd adds

/** A transform that passes bytes on: a write ends when its bytes have been read. */
export class IdentityTransformStream {
  #readable: ReadableStream<Uint8Array>;
  #writable: WritableStream<BufferSource | string>;

  constructor(_strategy?: unknown) {
    const { readable, writable } = pipe();
    this.#readable = readable;
    this.#writable = writable;
  }

  get readable(): ReadableStream { return this.#readable; }
  get writable(): WritableStream { return this.#writable; }
}

const lengths = new WeakMap<ReadableStream, number>();

/** How many bytes a stream promised to give: the Content-Length of a body. */
export function lengthOf(s: ReadableStream): number | undefined {
  return lengths.get(s);
}

export class FixedLengthStream extends IdentityTransformStream {
  #readable: ReadableStream;
  #writable: WritableStream;

  constructor(expected: number | bigint, strategy?: unknown) {
    super(strategy);
    const n = Number(expected);
    if (!Number.isSafeInteger(n) || n < 0) throw new TypeError("FixedLengthStream requires an integer expected length less than 2^53.");
    const { readable, writable } = pipe(n);
    this.#readable = readable;
    this.#writable = writable;
    lengths.set(readable, n);
  }

  override get readable(): ReadableStream { return this.#readable; }
  override get writable(): WritableStream { return this.#writable; }
}

function pipe(expected?: number): { readable: ReadableStream<Uint8Array>; writable: WritableStream } {
  let out!: ReadableByteStreamController;
  let into!: WritableStreamDefaultController;
  let wanted: (() => void) | undefined; // the writer waits for a reader
  let seen = 0;
  const readable = new ReadableStream<Uint8Array>({
    type: "bytes",
    start(c) { out = c; },
    pull() { return new Promise<void>((taken) => { answer = taken; wanted?.(); }); },
    cancel(reason) { into.error(reason ?? new TypeError("The readable side was canceled.")); wanted?.(); },
  }, { highWaterMark: 0 });
  let answer: (() => void) | undefined; // ends the pull under way
  const end = (e: unknown): void => { out.error(e); answer?.(); };
  const fail = (e: unknown): never => { end(e); throw e; };
  const writable = new WritableStream({
    start(c) { into = c; },
    async write(chunk: unknown) {
      const bytes = typeof chunk === "string" ? encodeUTF8(chunk) : isBufferSource(chunk) ? copyOf(chunk) : fail(new TypeError("This TransformStream is being used as a byte stream, but received an object of non-ArrayBuffer/ArrayBufferView type on its writable side."));
      seen += bytes.length;
      if (expected !== undefined && seen > expected) { // as in workerd the write itself does not fail, what follows does
        const e = new TypeError("Attempt to write too many bytes through a FixedLengthStream.");
        into.error(e);
        return end(e);
      }
      if (bytes.length === 0) return;
      if (!answer) await new Promise<void>((f) => { wanted = f; });
      wanted = undefined;
      const done = answer;
      answer = undefined;
      if (!done) return; // canceled meanwhile
      out.enqueue(bytes);
      done();
    },
    close() {
      if (expected !== undefined && seen < expected) return end(new TypeError("FixedLengthStream did not see all expected bytes before close()."));
      out.close();
      out.byobRequest?.respond(0);
      answer?.();
    },
    abort: end,
  });
  return { readable, writable };
}

/** Gives the polyfill's classes workerd's additions and its words for what goes wrong. */
export function adaptStreams(): void {
  const byob = ReadableStreamBYOBReader.prototype as any;
  byob.readAtLeast = function (min: number, view: ArrayBufferView) { return this.read(view, { min }); };
  const getReader = ReadableStream.prototype.getReader as Function;
  (ReadableStream.prototype as any).getReader = function (this: ReadableStream, options?: { mode?: string }) {
    if (this instanceof ReadableStream) {
      if (this.locked) throw new TypeError("This ReadableStream is currently locked to a reader.");
      if (options?.mode === "byob" && !isByteStream(this)) throw new TypeError("This ReadableStream does not support BYOB reads.");
    }
    return getReader.apply(this, arguments);
  };
  const write = WritableStreamDefaultWriter.prototype.write as Function;
  (WritableStreamDefaultWriter.prototype as any).write = function (this: any) {
    const state = this._ownerWritableStream;
    if (state && (state._state === "closed" || state._closeRequest !== undefined || state._inFlightCloseRequest !== undefined)) return Promise.reject(new TypeError("This WritableStream has been closed."));
    return write.apply(this, arguments);
  };
  const enqueue = ReadableByteStreamController.prototype.enqueue as Function;
  (ReadableByteStreamController.prototype as any).enqueue = function (chunk: unknown) {
    if (chunk instanceof ArrayBuffer) chunk = new Uint8Array(chunk);
    if (!ArrayBuffer.isView(chunk)) throw new TypeError("Failed to execute 'enqueue' on 'ReadableByteStreamController': parameter 1 is not of type 'BufferSource'.");
    return enqueue.call(this, chunk);
  };
}
