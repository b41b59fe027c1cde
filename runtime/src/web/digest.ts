// Hash functions: one-shot for subtle.digest, and DigestStream.
import { isBufferSource, viewOf, encodeUTF8 } from "./bytes";
import { DOMException } from "./exception";
import { job, op } from "./ops";
import { WritableStream } from "./streams";

const digestNow = op<ArrayBuffer>("crypto.digest");
const digestLater = job<ArrayBuffer>("crypto.digestLater");
const open = op<number>("crypto.hashOpen");
const write = op<void>("crypto.hashWrite");
const sum = op<ArrayBuffer>("crypto.hashSum");
const drop = op<void>("crypto.hashDrop");

/** From this length on, hashing happens beside the isolate. */
const largeDigest = 256 << 10;

const hashes: Record<string, string> = { "SHA-1": "SHA-1", "SHA-256": "SHA-256", "SHA-384": "SHA-384", "SHA-512": "SHA-512", MD5: "MD5" };

export function nameOf(algorithm: unknown): string {
  if (typeof algorithm === "string") return algorithm;
  const name = (algorithm as { name?: unknown } | null)?.name;
  if (algorithm == null) throw new TypeError("The algorithm must be a string or an object with a \"name\".");
  return String(name);
}

/** The hash that an algorithm names, in its proper spelling. */
export function hashName(algorithm: unknown): string {
  const known = hashes[nameOf(algorithm).toUpperCase()];
  if (known) return known;
  throw new DOMException("Unrecognized or unimplemented digest algorithm requested.", "NotSupportedError");
}

export async function digest(algorithm: unknown, data: Uint8Array): Promise<ArrayBuffer> {
  const name = hashName(algorithm);
  return data.length < largeDigest ? digestNow(name, data) : digestLater(name, data);
}

export class DigestStream extends WritableStream {
  #digest: Promise<ArrayBuffer>;
  #written = 0;

  constructor(algorithm: unknown) {
    const name = hashName(algorithm);
    let id = 0;
    let done!: (d: ArrayBuffer) => void;
    let fail!: (e: unknown) => void;
    const digest = new Promise<ArrayBuffer>((a, b) => { done = a; fail = b; });
    digest.catch(() => {});
    super({
      write: (chunk: unknown) => {
        if (typeof chunk !== "string" && !isBufferSource(chunk)) {
          const e = new TypeError("DigestStream is a byte stream but received an object of non-ArrayBuffer/ArrayBufferView/string type on its writable side.");
          fail(e);
          throw e;
        }
        const bytes = typeof chunk === "string" ? encodeUTF8(chunk) : viewOf(chunk);
        write((id ||= open(name)), bytes);
        this.#written += bytes.length;
      },
      close() { done(sum((id ||= open(name)))); },
      abort(reason) {
        if (id) drop(id);
        fail(reason);
      },
    });
    this.#digest = digest;
  }

  get digest(): Promise<ArrayBuffer> { return this.#digest; }
  get bytesWritten(): bigint { return BigInt(this.#written); }
}
