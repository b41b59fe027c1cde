// Blob and File. A blob is a list of byte ranges, so that slice() copies nothing.
import { bufferOf, concat, copyOf, decodeUTF8, encodeUTF8, isBufferSource } from "./bytes";
import { type ReadableStream, bytesStream } from "./streams";

interface BlobOptions {
  type?: string;
  endings?: "transparent" | "native";
}

function typeOf(type: unknown): string {
  const s = type === undefined ? "" : String(type);
  return /[^\x20-\x7e]/.test(s) ? "" : s.toLowerCase();
}

export class Blob {
  #parts: Uint8Array[] = [];
  #size = 0;
  #type: string;

  constructor(parts?: Iterable<unknown>, options: BlobOptions = {}) {
    if (parts !== undefined && (typeof parts !== "object" || parts === null || typeof parts[Symbol.iterator] !== "function")) {
      throw new TypeError("Failed to construct 'Blob': constructor parameter 1 is not of type 'Array'.");
    }
    this.#type = typeOf(options?.type);
    for (const p of parts ?? []) {
      if (p instanceof Blob) this.#push(...p.#parts);
      else if (isBufferSource(p)) this.#push(copyOf(p));
      else this.#push(encodeUTF8(String(p)));
    }
  }

  #push(...parts: Uint8Array[]): void {
    for (const p of parts) {
      if (p.length === 0) continue;
      this.#parts.push(p);
      this.#size += p.length;
    }
  }

  get size(): number { return this.#size; }
  get type(): string { return this.#type; }

  slice(start = 0, end = this.#size, type?: string): Blob {
    const from = clamp(start, this.#size);
    const to = Math.max(from, clamp(end, this.#size));
    const out = new Blob(undefined, { type });
    let at = 0;
    for (const p of this.#parts) {
      out.#push(p.subarray(Math.max(0, from - at), Math.max(0, Math.min(p.length, to - at))));
      at += p.length;
    }
    return out;
  }

  static bytes(b: Blob): Uint8Array<ArrayBuffer> { return concat(b.#parts, b.#size); }

  async arrayBuffer(): Promise<ArrayBuffer> { return bufferOf(blobBytes(this).slice()); }
  async bytes(): Promise<Uint8Array> { return blobBytes(this).slice(); }
  async text(): Promise<string> { return decodeUTF8(blobBytes(this)); }
  stream(): ReadableStream { return bytesStream(blobBytes(this)); }
}

function clamp(n: number, size: number): number {
  n = Math.trunc(Number(n)) || 0;
  return n < 0 ? Math.max(0, size + n) : Math.min(n, size);
}

/** The bytes of a blob at once; hidden from user code. */
export const blobBytes = Blob.bytes;
delete (Blob as { bytes?: unknown }).bytes;

export class File extends Blob {
  #name: string;
  #modified: number;

  constructor(parts: Iterable<unknown>, name: string, options: BlobOptions & { lastModified?: number } = {}) {
    if (arguments.length < 2) throw new TypeError(`Failed to construct 'File': constructor parameter ${arguments.length + 1} is not of type '${arguments.length === 0 ? "Array" : "string"}'.`);
    super(parts, options);
    this.#name = String(name).toWellFormed();
    this.#modified = options?.lastModified === undefined ? Date.now() : Math.trunc(Number(options.lastModified)) || 0;
  }

  get name(): string { return this.#name; }
  get lastModified(): number { return this.#modified; }
}
