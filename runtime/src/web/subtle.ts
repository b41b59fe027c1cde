// SubtleCrypto: checks who may do what with which key; Go does the work.
import { aesLength, accessError, blockBits, dataError, familyOf, notSupported, operationError, paramsOf } from "./algorithms";
import { type BufferSource, bufferOf, decodeUTF8, encodeUTF8, isBufferSource, viewOf } from "./bytes";
import { digest, hashName, nameOf } from "./digest";
import type { JsonWebKey } from "./jwk";
import { CryptoKey, type Usage, materialOf } from "./keys";
import { type CryptoKeyPair, exportKey, generateKey, importKey } from "./keystore";
import { job, op } from "./ops";

const aesNow = op<ArrayBuffer>("crypto.aes");
const aesLater = job<ArrayBuffer>("crypto.aesLater");
const hmacNow = op<ArrayBuffer>("crypto.hmac");
const hmacLater = job<ArrayBuffer>("crypto.hmacLater");
const equal = op<boolean>("crypto.equal");
const signWith = job<ArrayBuffer>("crypto.sign");
const signNow = op<ArrayBuffer>("crypto.signNow");
const verifyNow = op<boolean>("crypto.verifyNow");
const verifyWith = job<boolean>("crypto.verify");
const oaep = job<ArrayBuffer>("crypto.oaep");
const pbkdf2 = job<ArrayBuffer>("crypto.pbkdf2");
const hkdf = job<ArrayBuffer>("crypto.hkdf");
const agree = job<ArrayBuffer>("crypto.ecdh");

/** From this length on, symmetric work happens beside the isolate. */
const large = 64 << 10;
const none = new Uint8Array(0);

type Algorithm = string | { name: string; [parameter: string]: any };

function bytes(v: unknown, method: string, parameter: number): Uint8Array {
  if (!isBufferSource(v)) throw new TypeError(`Failed to execute '${method}' on 'SubtleCrypto': parameter ${parameter} is not of type 'JsBufferSource'.`);
  return viewOf(v);
}

function need(params: Record<string, any>, field: string): any {
  if (params[field] === undefined) throw new TypeError(`Missing field "${field}" in "algorithm".`);
  return params[field];
}

/** The key may be used so: its algorithm is the one asked for, and the usage is on its list. */
function check(algorithm: unknown, key: unknown, usage: Usage, method: string): CryptoKey {
  if (!(key instanceof CryptoKey)) throw new TypeError(`Failed to execute '${method}' on 'SubtleCrypto': parameter 2 is not of type 'CryptoKey'.`);
  const name = nameOf(algorithm);
  if (name.toUpperCase() !== key.algorithm.name.toUpperCase()) throw accessError(`Requested algorithm "${name}" does not match this CryptoKey's algorithm "${key.algorithm.name}".`);
  if (!key.usages.includes(usage)) throw accessError(`Requested key usage "${usage}" does not match any usage listed in this CryptoKey.`);
  return key;
}

function notImplemented(operation: string, key: CryptoKey): Error {
  return notSupported(`The ${operation} operation is not implemented for "${key.algorithm.name}".`);
}

/** Encrypts or decrypts with any algorithm that can. */
async function crypt(encrypt: boolean, algorithm: unknown, key: CryptoKey, data: Uint8Array, operation: string): Promise<ArrayBuffer> {
  const params = paramsOf(algorithm);
  const name = key.algorithm.name;
  if (name === "RSA-OAEP") {
    const label = params["label"] === undefined ? none : viewOf(params["label"]);
    return oaep(encrypt, key.algorithm.hash!.name, materialOf(key), label, data);
  }
  if (!name.startsWith("AES-") || (name === "AES-KW" && !operation.endsWith("Key"))) throw notImplemented(operation, key);
  const [iv, extra] = aesParameters(name, params, encrypt);
  if (name === "AES-KW" && encrypt && (data.length % 8 !== 0 || data.length < 16)) throw operationError("AES-KW can only wrap keys that are a multiple of 64 bits and at least 128 bits long.");
  return data.length < large ? aesNow(name, encrypt, materialOf(key), iv, data, extra) : aesLater(name, encrypt, materialOf(key), iv, data, extra);
}

const tagLengths = new Set([32, 64, 96, 104, 112, 120, 128]);

/** What crosses beside key and data: the vector, and what the mode needs more. */
function aesParameters(name: string, params: Record<string, any>, _encrypt: boolean): [Uint8Array, Uint8Array] {
  switch (name) {
    case "AES-CBC": {
      const iv = viewOf(need(params, "iv"));
      if (iv.length !== 16) throw operationError(`AES-CBC IV must be 16 bytes long (provided ${iv.length} bytes).`);
      return [iv, none];
    }
    case "AES-CTR": {
      const counter = viewOf(need(params, "counter"));
      const length = Number(need(params, "length"));
      if (counter.length !== 16) throw operationError(`Counter must have length of 16 bytes (provided ${counter.length}).`);
      if (!(length >= 1 && length <= 128)) throw operationError(`Invalid counter of ${length} bits length provided.`);
      return [counter, Uint8Array.of(length)]; // that it does not repeat is Go's to see
    }
    case "AES-GCM": {
      const iv = viewOf(need(params, "iv"));
      if (iv.length === 0) throw operationError("AES-GCM IV must not be empty.");
      const tag = Number(params["tagLength"] ?? 128);
      if (!tagLengths.has(tag)) throw operationError(`Invalid AES-GCM tag length ${tag}.`);
      const additional = params["additionalData"] === undefined ? none : viewOf(params["additionalData"]);
      const extra = new Uint8Array(1 + additional.length);
      extra[0] = tag / 8;
      extra.set(additional, 1);
      return [iv, extra];
    }
  }
  return [none, none];
}

async function mac(key: CryptoKey, data: Uint8Array): Promise<ArrayBuffer> {
  const hash = key.algorithm.hash!.name;
  return data.length < large ? hmacNow(hash, materialOf(key), data) : hmacLater(hash, materialOf(key), data);
}

/** The hash and the length of the salt that a signature takes. */
function signParameters(algorithm: unknown, key: CryptoKey): [string, string, number] {
  const params = paramsOf(algorithm);
  const { name } = key.algorithm;
  if (name === "ECDSA") {
    if (params["hash"] === undefined) throw new TypeError('Missing "hash" in AlgorithmIdentifier. (ECDSA requires that the hash algorithm be specified at call time rather than on the key. This differs from other WebCrypto algorithms for historical reasons.)');
    return [name, hashName(params["hash"]), 0];
  }
  if (name === "RSA-PSS") {
    if (params["saltLength"] === undefined) throw dataError("Failed to provide salt for RSA-PSS key operation which requires a salt");
    const salt = Number(params["saltLength"]);
    if (!Number.isInteger(salt) || salt < 0) throw operationError(`SaltLength for RSA-PSS must be a non-negative integer (provided ${salt}).`);
    return [name, key.algorithm.hash!.name, salt];
  }
  return [name, key.algorithm.hash?.name ?? "", 0];
}

/** Whether a signature takes less time than a change of goroutines saves. */
function quick(key: CryptoKey, input: Uint8Array): boolean {
  return input.length < large && (key.algorithm.namedCurve === "P-256" || key.algorithm.name === "Ed25519");
}

/** How many bits a derived key of this algorithm takes. */
function keyLength(algorithm: unknown): number | null {
  const f = familyOf(algorithm, (n) => `Unrecognized derived key type "${n}" requested.`);
  const params = paramsOf(algorithm);
  if (f.kind === "derive") return null;
  if (f.name === "HMAC") return Number(params["length"] ?? blockBits[hashName(need(params, "hash"))]);
  if (f.kind === "secret") return aesLength(need(params, "length"), "Derived");
  throw notSupported(`Unrecognized derived key type "${f.name}" requested.`);
}

async function derive(algorithm: unknown, key: CryptoKey, length: number | null): Promise<ArrayBuffer> {
  const params = paramsOf(algorithm);
  const { name } = key.algorithm;
  if (name === "ECDH" || name === "X25519") return deriveShared(params, key, length);
  if (name !== "PBKDF2" && name !== "HKDF") throw notImplemented("deriveBits", key);
  if (length === null || length === 0) throw operationError(`${name} cannot derive a key with null length.`);
  if (length % 8 !== 0) throw operationError(`${name} requires a derived key length that is a multiple of eight (requested ${length}).`);
  const hash = hashName(need(params, "hash"));
  const salt = viewOf(need(params, "salt"));
  if (name === "HKDF") return hkdf(hash, materialOf(key), salt, viewOf(need(params, "info")), length / 8);
  const iterations = Number(need(params, "iterations"));
  if (!(iterations > 0)) throw operationError(`PBKDF2 requires a positive iteration count (requested ${iterations}).`);
  return pbkdf2(hash, materialOf(key), salt, iterations, length / 8);
}

async function deriveShared(params: Record<string, any>, key: CryptoKey, length: number | null): Promise<ArrayBuffer> {
  const other = params["public"] ?? params["$public"];
  const { name, namedCurve } = key.algorithm;
  if (!(other instanceof CryptoKey)) throw new TypeError('Missing field "public" in "algorithm".');
  if (other.type !== "public") throw accessError(`The provided key has type "${other.type}", not "public"`);
  if (key.type !== "private") throw accessError(`The base key has type "${key.type}", not "private"`);
  if (other.algorithm.name !== name) throw accessError(`Base ${name} private key cannot be used to derive a key from a peer's public ${other.algorithm.name} key.`);
  if (other.algorithm.namedCurve !== namedCurve) throw accessError(`Base ${name} private key must have the same curve as the peer's public key.`);
  const secret = await agree(materialOf(key), materialOf(other));
  if (length === null) return secret;
  if (length > secret.byteLength * 8) throw operationError(`Derived key length (${length} bits) is too long (should be at most ${secret.byteLength * 8} bits).`);
  const out = new Uint8Array(secret.slice(0, Math.ceil(length / 8)));
  if (length % 8 !== 0) out[out.length - 1]! &= 0xff << (8 - (length % 8));
  return bufferOf(out);
}

export class SubtleCrypto {
  constructor(secret?: unknown) {
    if (typeof secret !== "symbol") throw new TypeError("Illegal constructor");
  }

  async digest(algorithm: Algorithm, data: BufferSource): Promise<ArrayBuffer> {
    return digest(algorithm, bytes(data, "digest", 2));
  }

  async encrypt(algorithm: Algorithm, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer> {
    check(algorithm, key, "encrypt", "encrypt");
    return crypt(true, algorithm, key, bytes(data, "encrypt", 3), "encrypt");
  }

  async decrypt(algorithm: Algorithm, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer> {
    check(algorithm, key, "decrypt", "decrypt");
    return crypt(false, algorithm, key, bytes(data, "decrypt", 3), "decrypt");
  }

  async sign(algorithm: Algorithm, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer> {
    check(algorithm, key, "sign", "sign");
    const input = bytes(data, "sign", 3);
    if (key.algorithm.name === "HMAC") return mac(key, input);
    const [name, hash, salt] = signParameters(algorithm, key);
    return (quick(key, input) ? signNow : signWith)(name, hash, salt, materialOf(key), input);
  }

  async verify(algorithm: Algorithm, key: CryptoKey, signature: BufferSource, data: BufferSource): Promise<boolean> {
    check(algorithm, key, "verify", "verify");
    const given = bytes(signature, "verify", 3);
    const input = bytes(data, "verify", 4);
    if (key.algorithm.name === "HMAC") return equal(await mac(key, input), given);
    const [name, hash, salt] = signParameters(algorithm, key);
    return (quick(key, input) ? verifyNow : verifyWith)(name, hash, salt, materialOf(key), given, input);
  }

  async generateKey(algorithm: Algorithm, extractable: boolean, usages: Usage[]): Promise<CryptoKey | CryptoKeyPair> {
    return generateKey(algorithm, !!extractable, usages);
  }

  async importKey(format: string, data: BufferSource | JsonWebKey, algorithm: Algorithm, extractable: boolean, usages: Usage[]): Promise<CryptoKey> {
    return importKey(format, data, algorithm, !!extractable, usages);
  }

  async exportKey(format: string, key: CryptoKey): Promise<ArrayBuffer | JsonWebKey> {
    if (!(key instanceof CryptoKey)) throw new TypeError("Failed to execute 'exportKey' on 'SubtleCrypto': parameter 2 is not of type 'CryptoKey'.");
    return exportKey(format, key);
  }

  async deriveBits(algorithm: Algorithm, key: CryptoKey, length: number | null = null): Promise<ArrayBuffer> {
    check(algorithm, key, "deriveBits", "deriveBits");
    return derive(algorithm, key, length == null ? null : Number(length));
  }

  async deriveKey(algorithm: Algorithm, key: CryptoKey, derived: Algorithm, extractable: boolean, usages: Usage[]): Promise<CryptoKey> {
    check(algorithm, key, "deriveKey", "deriveKey");
    const secret = await derive(algorithm, key, keyLength(derived));
    return importKey("raw", secret, derived, !!extractable, usages);
  }

  async wrapKey(format: string, key: CryptoKey, wrappingKey: CryptoKey, algorithm: Algorithm): Promise<ArrayBuffer> {
    check(algorithm, wrappingKey, "wrapKey", "wrapKey");
    const exported = await exportKey(format, key);
    let data = exported instanceof ArrayBuffer ? new Uint8Array(exported) : encodeUTF8(JSON.stringify(exported));
    if (wrappingKey.algorithm.name === "AES-KW" && format === "jwk") data = padded(data);
    return crypt(true, algorithm, wrappingKey, data, "wrapKey");
  }

  async unwrapKey(format: string, wrapped: BufferSource, unwrappingKey: CryptoKey, algorithm: Algorithm, keyAlgorithm: Algorithm, extractable: boolean, usages: Usage[]): Promise<CryptoKey> {
    const input = bytes(wrapped, "unwrapKey", 2);
    check(algorithm, unwrappingKey, "unwrapKey", "unwrapKey");
    const data = await crypt(false, algorithm, unwrappingKey, input, "unwrapKey");
    return importKey(format, format === "jwk" ? JSON.parse(decodeUTF8(new Uint8Array(data))) : data, keyAlgorithm, !!extractable, usages);
  }

  timingSafeEqual(a: BufferSource, b: BufferSource): boolean {
    const [x, y] = [bytes(a, "timingSafeEqual", 1), bytes(b, "timingSafeEqual", 2)];
    if (x.length !== y.length) throw new TypeError("Input buffers must have the same byte length.");
    return equal(x, y);
  }
}

/** JSON filled up with spaces to the multiple of eight that AES-KW wants. */
function padded(data: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(Math.ceil(data.length / 8) * 8).fill(0x20);
  out.set(data);
  return out;
}
