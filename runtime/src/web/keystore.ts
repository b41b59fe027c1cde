// Making, importing and exporting keys.
import {
  type Family, type Kind, accessError, aesLength, blockBits, curveFor, dataError, familyOf, hashFor, notSupported, operationError, pairAlgorithm, paramsOf, usagesFor,
} from "./algorithms";
import { type BufferSource, bufferOf, copyOf, isBufferSource } from "./bytes";
import { DOMException } from "./exception";
import { type JsonWebKey, algOf, checkAlg, checkUse, fromBase64url, fullJwk, toBase64url } from "./jwk";
import { CryptoKey, type KeyAlgorithm, type KeyType, type Usage, materialOf, newKey } from "./keys";
import { job, op } from "./ops";

const fill = op<void>("random.fill");
const makePair = job<[ArrayBuffer, ArrayBuffer]>("crypto.generate");
const importPair = op<[KeyType, ArrayBuffer, number | string, ArrayBuffer]>("crypto.import");
const exportPair = op<ArrayBuffer | string>("crypto.export");

export interface CryptoKeyPair {
  publicKey: CryptoKey;
  privateKey: CryptoKey;
}

// ---- generate

export async function generateKey(algorithm: unknown, extractable: boolean, usages: unknown): Promise<CryptoKey | CryptoKeyPair> {
  const f = familyOf(algorithm, (n) => `Unrecognized key generation algorithm "${n}" requested.`);
  const params = paramsOf(algorithm);
  if (f.kind === "derive") throw notSupported(`Unrecognized key generation algorithm "${f.name}" requested.`);
  if (f.kind === "secret") return generateSecret(f, params, extractable, usages);
  return generatePair(f, params, extractable, usages);
}

function generateSecret(f: Family, params: Record<string, any>, extractable: boolean, usages: unknown): CryptoKey {
  const list = usagesFor(f, "secret", usages, "generate");
  const hash = hashFor(f, params);
  if (f.name !== "HMAC" && params["length"] === undefined) throw new TypeError('Missing field "length" in "algorithm".');
  const bits = f.name === "HMAC" ? Number(params["length"] ?? blockBits[hash!]) : aesLength(params["length"], "Generated");
  if (bits === 0) throw operationError("HMAC key length must be a non-zero multiple of eight (requested 0).");
  const bytes = new Uint8Array(Math.ceil(bits / 8));
  fillBytes(bytes);
  const algorithm: KeyAlgorithm = hash ? { name: f.name, hash: { name: hash }, length: bits } : { name: f.name, length: bits };
  return newKey("secret", extractable, algorithm, list, bytes);
}

/** Small arrays live inside V8's heap until their buffer is asked for; Go must write to the buffer. */
export function fillBytes(view: ArrayBufferView): void {
  void view.buffer;
  fill(view);
}

const maxModulus = 16384;

async function generatePair(f: Family, params: Record<string, any>, extractable: boolean, usages: unknown): Promise<CryptoKeyPair> {
  const all = Array.from(usages as Iterable<unknown>, String) as Usage[];
  for (const u of all) if (!f.secret.includes(u) && !f.public.includes(u)) throw new DOMException(`Attempt to generate ${f.name} key with invalid usage "${u}".`, "SyntaxError");
  const forPrivate = all.filter((u) => f.secret.includes(u));
  if (forPrivate.length === 0) throw new DOMException("Attempt to generate asymmetric keys with no valid private key usages.", "SyntaxError");
  const curve = curveFor(f, params);
  const hash = hashFor(f, params);
  const bits = Number(params["modulusLength"]);
  const exponent = params["publicExponent"] as Uint8Array;
  if (f.kind === "RSA") checkRSA(bits, exponent);
  const [p8, spki] = await makePair(f.kind, f.kind === "RSA" ? bits : curve);
  const detail = { bits, exponent: exponent && copyOf(exponent), curve };
  return {
    publicKey: newKey("public", true, pairAlgorithm(f, hash, detail), all.filter((u) => f.public.includes(u)), new Uint8Array(spki)),
    privateKey: newKey("private", extractable, pairAlgorithm(f, hash, detail), forPrivate, new Uint8Array(p8)),
  };
}

function checkRSA(bits: number, exponent: unknown): void {
  if (!(exponent instanceof Uint8Array)) throw new TypeError('Missing field "publicExponent" in "algorithm".');
  if (!(bits >= 256 && bits <= maxModulus && bits % 8 === 0)) throw operationError(`The modulus length must be a multiple of 8 and between 256 and 16k, but ${bits} was requested.`);
  if (bits < 1024) throw notSupported(`RSA keys under 1024 bits are not supported (requested ${bits}).`);
  const e = exponent.reduce((n, b) => n * 256 + b, 0);
  if (e === 3) throw notSupported("Keys with the public exponent 3 can be imported but not generated. Use 65537.");
  if (e !== 65537) throw operationError(`The "publicExponent" must be either 3 or 65537, but got ${e}.`);
}

// ---- import

export async function importKey(format: string, data: unknown, algorithm: unknown, extractable: boolean, usages: unknown): Promise<CryptoKey> {
  const f = familyOf(algorithm, (n) => `Unrecognized key import algorithm "${n}" requested.`);
  const params = paramsOf(algorithm);
  if (!["raw", "spki", "pkcs8", "jwk"].includes(format)) throw notSupported(`Unrecognized key import format "${format}".`);
  if (format === "jwk" && (isBufferSource(data) || typeof data !== "object" || data === null)) throw new TypeError('Import data provided for "jwk" import format must be a JsonWebKey.');
  if (format !== "jwk" && !isBufferSource(data)) throw new TypeError(`Import data provided for "raw", "pkcs8", or "spki" import formats must be a buffer source.`);
  if (f.kind === "secret" || f.kind === "derive") return importSecret(f, format, data as BufferSource | JsonWebKey, params, extractable, usages);
  return importAsymmetric(f, format, data as BufferSource | JsonWebKey, params, extractable, usages);
}

function importSecret(f: Family, format: string, data: BufferSource | JsonWebKey, params: Record<string, any>, extractable: boolean, usages: unknown): CryptoKey {
  const list = usagesFor(f, "secret", usages, "import");
  const hash = hashFor(f, params);
  if (f.kind === "derive" && format !== "raw") throw notSupported(`${f.name} key must be imported in "raw" format (requested "${format}")`);
  if (format !== "raw" && format !== "jwk") throw notSupported(`Unrecognized key import format "${format}".`);
  if (f.kind === "derive" && extractable) throw new DOMException(`${f.name} key cannot be extractable.`, "SyntaxError");
  const bytes = format === "jwk" ? octets(data as JsonWebKey, f, list, extractable) : copyOf(data as BufferSource);
  const key = newKey("secret", extractable, secretAlgorithm(f, hash, bytes, params), list, bytes);
  if (format === "jwk") checkAlg(data as JsonWebKey, key.algorithm);
  return key;
}

function octets(jwk: JsonWebKey, f: Family, usages: Usage[], extractable: boolean): Uint8Array {
  if (jwk["kty"] !== "oct") throw dataError(`Symmetric "jwk" key import requires a JSON Web Key with Key Type parameter "kty" equal to "oct" (encountered "${jwk["kty"]}").`);
  checkUse(jwk, f, usages, extractable);
  const bytes = fromBase64url(jwk["k"]);
  if (bytes === undefined) throw dataError('Symmetric "jwk" key import requires a base64Url encoding of the key.');
  return bytes;
}

function secretAlgorithm(f: Family, hash: string | undefined, bytes: Uint8Array, params: Record<string, any>): KeyAlgorithm {
  const bits = bytes.length * 8;
  if (f.kind === "derive") return { name: f.name };
  if (f.name !== "HMAC") return { name: f.name, length: aesLength(bits, "Imported") };
  const length = params["length"] === undefined ? bits : Number(params["length"]);
  if (length === 0 || length > bits || length <= bits - 8) throw dataError(`Imported HMAC key length (${length}) must be a non-zero value up to 7 bits less than, and no greater than, the bit length of the raw key data (${bits}).`);
  return { name: f.name, hash: { name: hash! }, length };
}

const keyTypes: Partial<Record<Kind, string>> = { RSA: "RSA", EC: "EC", Ed25519: "OKP", X25519: "OKP" };
const described: Partial<Record<Kind, string>> = { RSA: "RSA", EC: "Elliptic curve", Ed25519: "Edwards curve", X25519: "Edwards curve" };

function importAsymmetric(f: Family, format: string, data: BufferSource | JsonWebKey, params: Record<string, any>, extractable: boolean, usages: unknown): CryptoKey {
  const curve = curveFor(f, params);
  const hash = hashFor(f, params);
  if (format === "raw" && f.kind === "RSA") throw notSupported(`Unrecognized key import format "raw".`);
  const jwk = format === "jwk" ? (data as JsonWebKey) : undefined;
  const type: KeyType = format === "pkcs8" || jwk?.["d"] !== undefined ? "private" : "public";
  const list = usagesFor(f, type, usages, "import");
  if (jwk) {
    if (jwk["kty"] !== keyTypes[f.kind]) throw dataError(`${described[f.kind]} "jwk" key import requires a JSON Web Key with Key Type parameter "kty" ("${jwk["kty"]}") equal to "${keyTypes[f.kind]}".`);
    checkUse(jwk, f, list, extractable);
  }
  const [got, material, detail, exponent] = importPair(format, f.kind, curve, jwk ? JSON.stringify(jwk) : copyOf(data as BufferSource));
  const key = newKey(got, extractable, pairAlgorithm(f, hash, { bits: detail as number, exponent: exponent && new Uint8Array(exponent), curve }), list, new Uint8Array(material));
  if (jwk) checkAlg(jwk, key.algorithm);
  return key;
}

// ---- export

export async function exportKey(format: string, key: CryptoKey): Promise<ArrayBuffer | JsonWebKey> {
  const name = key.algorithm.name;
  if (!key.extractable) throw accessError(`Attempt to export non-extractable ${name} key.`);
  if (key.type === "secret") return exportSecret(format, key);
  switch (format) {
    case "jwk": return fullJwk({ ...JSON.parse(exportPair("jwk", key.type, materialOf(key)) as string), ...about(key) });
    case "spki":
    case "pkcs8":
      if ((format === "spki") !== (key.type === "public")) throw accessError(`Asymmetric ${format} export requires ${format === "spki" ? "public" : "private"} key (not "${key.type}").`);
      return bufferOf(copyOf(materialOf(key)));
    case "raw":
      if (key.type !== "public") throw accessError("Raw export of elliptic curve keys is only allowed for public keys.");
      if (name.startsWith("RSA")) throw accessError(`Cannot export "${name}" in "raw" format.`);
      return exportPair("raw", key.type, materialOf(key)) as ArrayBuffer;
  }
  throw notSupported(`Unrecognized export format "${format}" for ${name} keys.`);
}

function about(key: CryptoKey): JsonWebKey {
  return { alg: algOf(key.algorithm), ext: key.extractable, key_ops: key.usages };
}

function exportSecret(format: string, key: CryptoKey): ArrayBuffer | JsonWebKey {
  if (format === "raw") return bufferOf(copyOf(materialOf(key)));
  if (format === "jwk") return fullJwk({ kty: "oct", k: toBase64url(materialOf(key)), ...about(key) });
  throw notSupported(`${key.algorithm.name} key only supports exporting "raw" & "jwk", not "${format}".`);
}
