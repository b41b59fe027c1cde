// TextEncoder and TextDecoder (tables in Go), atob and btoa.
import { type BufferSource, decodeUTF8KeepBOM, encodeUTF8, isBufferSource, viewOf } from "./bytes";
import { DOMException } from "./exception";
import { op } from "./ops";

const encodeInto = op<number>("text.encodeInto");
const encodingOf = op<string | null>("text.label");
const validUTF8 = op<boolean>("text.valid");
const decodeLegacy = op<string>("text.decode");
const fromBase64 = op<string | null>("text.atob");
const toBase64 = op<string | null>("text.btoa");

export class TextEncoder {
  get encoding() { return "utf-8"; }

  encode(text: unknown = ""): Uint8Array { return encodeUTF8(String(text)); }

  encodeInto(text: string, target: Uint8Array): { read: number; written: number } {
    if (!(target instanceof Uint8Array)) throw new TypeError("Failed to execute 'encodeInto' on 'TextEncoder': parameter 2 is not of type 'Uint8Array'.");
    const counts = new Uint32Array(2);
    void [target.buffer, counts.buffer]; // small arrays are inside V8's heap until their buffer is asked for
    encodeInto(String(text), target, counts);
    return { read: counts[0]!, written: counts[1]! };
  }
}

const common: Record<string, string> = { "utf-8": "utf-8", utf8: "utf-8", "UTF-8": "utf-8" };
const decoderErrors = { fatal: "Failed to decode input." };
const none = new Uint8Array(0);

export interface TextDecoderOptions {
  fatal?: boolean;
  ignoreBOM?: boolean;
}

export class TextDecoder {
  #encoding: string;
  #fatal: boolean;
  #ignoreBOM: boolean;
  #rest: Uint8Array = none; // bytes of a character that the last chunk began
  #started = false; // a byte order mark can no longer come
  #state: ArrayBuffer | undefined; // of a legacy encoding: what Go's decoder keeps between chunks: [bytes used, mode of a stateful encoding]

  constructor(label: string = "utf-8", options: TextDecoderOptions = {}) {
    const name = common[label] ?? encodingOf(String(label));
    if (name === null) throw new RangeError(`"${label}" is not a valid encoding.`);
    this.#encoding = name;
    this.#fatal = !!options?.fatal;
    this.#ignoreBOM = !!options?.ignoreBOM;
  }

  get encoding() { return this.#encoding; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBOM; }

  decode(input: BufferSource = none, options: { stream?: boolean } = {}): string {
    if (!isBufferSource(input)) throw new TypeError("Failed to execute 'decode' on 'TextDecoder': parameter 1 is not of type 'Array'.");
    const last = !options?.stream;
    let bytes = viewOf(input);
    if (this.#rest.length > 0) bytes = join(this.#rest, bytes);
    this.#rest = none;
    try {
      return this.#encoding === "utf-8" ? this.#utf8(bytes, last) : this.#legacy(bytes, last);
    } finally {
      if (last) this.#reset();
    }
  }

  #reset(): void {
    this.#rest = none;
    this.#started = false;
    this.#state = undefined;
  }

  #utf8(bytes: Uint8Array, last: boolean): string {
    const whole = last ? bytes.length : wholeCharacters(bytes);
    if (whole < bytes.length) {
      this.#rest = bytes.slice(whole);
      bytes = bytes.subarray(0, whole);
    }
    if (this.#fatal && !validUTF8(bytes)) throw new TypeError(decoderErrors.fatal);
    if (bytes.length === 0) return "";
    if (!this.#started) {
      this.#started = true;
      if (!this.#ignoreBOM && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) bytes = bytes.subarray(3);
    }
    return decodeUTF8KeepBOM(bytes);
  }

  #legacy(bytes: Uint8Array, last: boolean): string {
    const state = (this.#state ??= new ArrayBuffer(8));
    const text = decodeLegacy(this.#encoding, bytes, last, this.#fatal, state);
    const used = new Int32Array(state)[0]!;
    if (used < bytes.length) this.#rest = bytes.slice(used);
    if (this.#started || text === "") return text;
    this.#started = true;
    return !this.#ignoreBOM && this.#encoding.startsWith("utf-16") && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
}

function join(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}

/** How many bytes there are before a character that is not complete yet. */
function wholeCharacters(b: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= b.length; back++) {
    const c = b[b.length - back]!;
    if (c < 0x80) break;
    if (c < 0xc0) continue;
    const need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    return c < 0xf5 && need > back && plausible(b, b.length - back) ? b.length - back : b.length;
  }
  return b.length;
}

/** Whether the second byte, if it is there, may follow the first: else the sequence is over already. */
function plausible(b: Uint8Array, i: number): boolean {
  const second = b[i + 1];
  if (second === undefined) return b[i]! > 0xc1;
  switch (b[i]) {
    case 0xe0: return second >= 0xa0;
    case 0xed: return second < 0xa0;
    case 0xf0: return second >= 0x90;
    case 0xf4: return second < 0x90;
  }
  return true;
}

export function atob(data: unknown): string {
  if (arguments.length === 0) throw new TypeError("Failed to execute 'atob' on 'ServiceWorkerGlobalScope': parameter 1 is not of type 'string'.");
  const s = fromBase64(String(data));
  if (s !== null) return s;
  throw new DOMException("atob() called with invalid base64-encoded data. (Only whitespace, '+', '/', alphanumeric ASCII, and up to two terminal '=' signs when the input data length is divisible by 4 are allowed.)", "InvalidCharacterError");
}

export function btoa(data: unknown): string {
  if (arguments.length === 0) throw new TypeError("Failed to execute 'btoa' on 'ServiceWorkerGlobalScope': parameter 1 is not of type 'string'.");
  const s = toBase64(String(data));
  if (s !== null) return s;
  throw new DOMException("btoa() can only operate on characters in the Latin1 (ISO/IEC 8859-1) range.", "InvalidCharacterError");
}
