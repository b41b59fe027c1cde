// crypto: random values and digests, and the rest of WebCrypto behind SubtleCrypto.
import { type BufferSource, isBufferSource } from "./bytes";
import { DOMException } from "./exception";
import { op } from "./ops";
import { SubtleCrypto } from "./subtle";
import { DigestStream } from "./digest";
import { fillBytes } from "./keystore";

export { CryptoKey } from "./keys";
export { SubtleCrypto } from "./subtle";
export { DigestStream } from "./digest";

const uuid = op<string>("random.uuid");
const maxRandom = 65536;
const integerViews = new Set(["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array", "BigInt64Array", "BigUint64Array"]);
const kindOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag)!.get!;

const token = Symbol("internal");

export class Crypto {
  #subtle = new SubtleCrypto(token);

  constructor(secret?: unknown) {
    if (secret !== token) throw new TypeError("Illegal constructor");
  }

  get subtle(): SubtleCrypto { return this.#subtle; }
  get DigestStream(): typeof DigestStream { return DigestStream; }
  randomUUID(): string { return uuid(); }

  getRandomValues<T extends BufferSource>(view: T): T {
    if (!isBufferSource(view)) throw new TypeError("Failed to execute 'getRandomValues' on 'Crypto': parameter 1 is not of type 'JsArrayBufferView'.");
    if (!integerViews.has(kindOf.call(view))) throw new DOMException("ArrayBufferView argument to getRandomValues() must be an integer-typed view.", "TypeMismatchError");
    if (view.byteLength > maxRandom) throw new DOMException(`getRandomValues() only accepts buffers of size <= 64K but provided ${view.byteLength} bytes.`, "QuotaExceededError");
    fillBytes(view as ArrayBufferView);
    return view;
  }
}

export const crypto = new Crypto(token);
