// TextEncoderStream, TextDecoderStream, CompressionStream and DecompressionStream.
import { encodeUTF8, isBufferSource, viewOf } from "./bytes";
import { TextDecoder, type TextDecoderOptions } from "./encoding";
import { job, op } from "./ops";
import { type ReadableStream, TransformStream, type TransformStreamDefaultController, type WritableStream } from "./streams";

/** A pair of streams that a transformer stands between. */
class Pair {
  #t: TransformStream;
  constructor(t: TransformStream) { this.#t = t; }
  get readable(): ReadableStream { return this.#t.readable; }
  get writable(): WritableStream { return this.#t.writable; }
}

export class TextEncoderStream extends Pair {
  constructor() {
    let high = ""; // the first half of a pair that the next chunk may complete
    super(new TransformStream({
      transform(chunk: unknown, c) {
        let s = high + String(chunk);
        high = "";
        const last = s.charCodeAt(s.length - 1);
        if (last >= 0xd800 && last < 0xdc00) {
          high = s.slice(-1);
          s = s.slice(0, -1);
        }
        if (s !== "") c.enqueue(encodeUTF8(s));
      },
      flush(c) { if (high !== "") c.enqueue(encodeUTF8("\ufffd")); },
    }));
  }
  get encoding() { return "utf-8"; }
}

export class TextDecoderStream extends Pair {
  #decoder: TextDecoder;
  constructor(label = "utf-8", options: TextDecoderOptions = {}) {
    const decoder = new TextDecoder(label, options);
    super(new TransformStream({
      transform(chunk: unknown, c) {
        if (!isBufferSource(chunk)) throw new TypeError("Failed to execute 'write' on 'TextDecoderStream': parameter 1 is not of type 'BufferSource'.");
        const s = decoder.decode(chunk, { stream: true });
        if (s !== "") c.enqueue(s);
      },
      flush(c) {
        const s = decoder.decode();
        if (s !== "") c.enqueue(s);
      },
    }));
    this.#decoder = decoder;
  }
  get encoding() { return this.#decoder.encoding; }
  get fatal() { return this.#decoder.fatal; }
  get ignoreBOM() { return this.#decoder.ignoreBOM; }
}

const open = op<number>("zip.open");
const push = job<ArrayBuffer>("zip.push");
const finish = job<ArrayBuffer>("zip.finish");
const drop = op<void>("zip.drop");

/** Go holds the state of a codec; it goes when the stream ends, or is collected. */
let registry: FinalizationRegistry<number> | undefined; // made late: a snapshot cannot hold one
const abandoned = () => (registry ??= new FinalizationRegistry<number>((id) => drop(id)));

const formats = new Set(["gzip", "deflate", "deflate-raw", "brotli"]);

function codec(format: unknown, compress: boolean): TransformStream {
  const f = String(format);
  // brotli is ours: the reference engine refuses it.
  if (!formats.has(f)) throw new TypeError("The compression format must be either 'deflate', 'deflate-raw' or 'gzip'.");
  let id = 0;
  const give = (c: TransformStreamDefaultController<unknown>, out: ArrayBuffer) => { if (out.byteLength > 0) c.enqueue(new Uint8Array(out)); };
  const t = new TransformStream({
    async transform(chunk: unknown, c) {
      if (!isBufferSource(chunk)) throw new TypeError("The chunk is not an ArrayBuffer or ArrayBufferView.");
      give(c, await push((id ||= begin()), viewOf(chunk)));
    },
    async flush(c) {
      give(c, await finish((id ||= begin())));
      registry?.unregister(t);
    },
    cancel() { if (id) drop(id); },
  });
  const begin = () => {
    const id = open(f, compress);
    abandoned().register(t, id, t);
    return id;
  };
  return t;
}

export class CompressionStream extends Pair {
  constructor(format: string) { super(codec(format, true)); }
}

export class DecompressionStream extends Pair {
  constructor(format: string) { super(codec(format, false)); }
}
