// Views of bytes, and UTF-8 to and from strings.
import { op } from "./ops";

const fromUTF8 = op<string>("text.utf8");
const toUTF8 = op<ArrayBuffer>("text.encode");

export type BufferSource = ArrayBuffer | ArrayBufferView;

export function isBufferSource(v: unknown): v is BufferSource {
  return ArrayBuffer.isView(v) || v instanceof ArrayBuffer || isSharedBuffer(v);
}

function isSharedBuffer(v: unknown): boolean {
  return typeof SharedArrayBuffer !== "undefined" && v instanceof SharedArrayBuffer;
}

/** The bytes of a BufferSource, not copied. */
export function viewOf(v: BufferSource): Uint8Array<ArrayBuffer> {
  if (v instanceof Uint8Array) return v as Uint8Array<ArrayBuffer>;
  if (ArrayBuffer.isView(v)) return new Uint8Array(v.buffer as ArrayBuffer, v.byteOffset, v.byteLength);
  return new Uint8Array(v);
}

export function copyOf(v: BufferSource): Uint8Array<ArrayBuffer> {
  return viewOf(v).slice();
}

/** A buffer that holds exactly these bytes. */
export function bufferOf(v: Uint8Array): ArrayBuffer {
  return v.byteOffset === 0 && v.byteLength === v.buffer.byteLength ? (v.buffer as ArrayBuffer) : (v.slice().buffer as ArrayBuffer);
}

export function concat(chunks: readonly Uint8Array[], total = chunks.reduce((n, c) => n + c.byteLength, 0)): Uint8Array<ArrayBuffer> {
  if (chunks.length === 1) return chunks[0] as Uint8Array<ArrayBuffer>;
  const out = new Uint8Array(total);
  let at = 0;
  for (const c of chunks) {
    out.set(c, at);
    at += c.byteLength;
  }
  return out;
}

/** Below this length a loop is quicker than a call into Go. */
const shortText = 48;

export function encodeUTF8(s: string): Uint8Array<ArrayBuffer> {
  if (s.length <= shortText) {
    const out = new Uint8Array(s.length);
    let i = 0;
    for (; i < s.length; i++) {
      const c = s.charCodeAt(i);
      if (c > 0x7f) break;
      out[i] = c;
    }
    if (i === s.length) return out;
  }
  return new Uint8Array(toUTF8(s));
}

/** UTF-8 decode: a byte order mark goes, what is malformed becomes U+FFFD. */
export function decodeUTF8(b: Uint8Array): string {
  if (b.byteLength === 0) return "";
  if (b[0] === 0xef && b[1] === 0xbb && b[2] === 0xbf) b = b.subarray(3);
  return decodeUTF8KeepBOM(b);
}

export function decodeUTF8KeepBOM(b: Uint8Array): string {
  if (b.byteLength <= 24) {
    let s = "";
    let i = 0;
    for (; i < b.byteLength && b[i]! < 0x80; i++) s += String.fromCharCode(b[i]!);
    if (i === b.byteLength) return s;
  }
  return fromUTF8(b);
}
