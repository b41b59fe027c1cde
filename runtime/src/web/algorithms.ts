// The algorithms of WebCrypto: how their parameters are read, and what keys of theirs may be used for.
import { hashName, nameOf } from "./digest";
import { DOMException } from "./exception";
import type { KeyAlgorithm, KeyType, Usage } from "./keys";

export type Kind = "secret" | "RSA" | "EC" | "Ed25519" | "X25519" | "derive";

export interface Family {
  name: string;
  kind: Kind;
  /** What a secret or private key may do, and what a public one. */
  secret: Usage[];
  public: Usage[];
}

const crypt: Usage[] = ["encrypt", "decrypt", "wrapKey", "unwrapKey"];
const derive: Usage[] = ["deriveKey", "deriveBits"];

const families: Family[] = [
  { name: "AES-CBC", kind: "secret", secret: crypt, public: [] },
  { name: "AES-CTR", kind: "secret", secret: crypt, public: [] },
  { name: "AES-GCM", kind: "secret", secret: crypt, public: [] },
  { name: "AES-KW", kind: "secret", secret: ["wrapKey", "unwrapKey"], public: [] },
  { name: "HMAC", kind: "secret", secret: ["sign", "verify"], public: [] },
  { name: "RSASSA-PKCS1-v1_5", kind: "RSA", secret: ["sign"], public: ["verify"] },
  { name: "RSA-PSS", kind: "RSA", secret: ["sign"], public: ["verify"] },
  { name: "RSA-OAEP", kind: "RSA", secret: ["decrypt", "unwrapKey"], public: ["encrypt", "wrapKey"] },
  { name: "ECDSA", kind: "EC", secret: ["sign"], public: ["verify"] },
  { name: "ECDH", kind: "EC", secret: derive, public: [] },
  { name: "Ed25519", kind: "Ed25519", secret: ["sign"], public: ["verify"] },
  { name: "NODE-ED25519", kind: "Ed25519", secret: ["sign"], public: ["verify"] },
  { name: "X25519", kind: "X25519", secret: derive, public: [] },
  { name: "PBKDF2", kind: "derive", secret: derive, public: [] },
  { name: "HKDF", kind: "derive", secret: derive, public: [] },
];

const byName = new Map(families.map((f) => [f.name.toUpperCase(), f]));

export function notSupported(message: string): DOMException { return new DOMException(message, "NotSupportedError"); }
export function dataError(message: string): DOMException { return new DOMException(message, "DataError"); }
export function operationError(message: string): DOMException { return new DOMException(message, "OperationError"); }
export function accessError(message: string): DOMException { return new DOMException(message, "InvalidAccessError"); }

/** The family that an algorithm names, or an error that says for which operation it was asked. */
export function familyOf(algorithm: unknown, unknown: (name: string) => string): Family {
  const name = nameOf(algorithm);
  const f = byName.get(name.toUpperCase());
  if (!f) throw notSupported(unknown(name));
  return f;
}

/** Parameters of an algorithm given as an object; a bare name has none. */
export function paramsOf(algorithm: unknown): Record<string, any> {
  return typeof algorithm === "object" && algorithm !== null ? (algorithm as Record<string, any>) : {};
}

const known = new Set<string>(["encrypt", "decrypt", "sign", "verify", "deriveKey", "deriveBits", "wrapKey", "unwrapKey"]);

/** Checks the usages of a key about to be made; verb is "import" or "generate". */
export function usagesFor(f: Family, type: KeyType, usages: unknown, verb: string): Usage[] {
  const list = Array.from(usages as Iterable<unknown>, String);
  const allowed = type === "public" ? f.public : f.secret;
  for (const u of list) {
    if (!known.has(u) || !allowed.includes(u as Usage)) throw new DOMException(`Attempt to ${verb} ${type} ${f.name} key with invalid usage "${u}".`, "SyntaxError");
  }
  if (type !== "public" && list.length === 0) throw new DOMException("Secret/private CryptoKeys must have at least one usage.", "SyntaxError");
  return list as Usage[];
}

const curves = new Set(["P-256", "P-384", "P-521"]);

export function curveFor(f: Family, params: Record<string, any>): string {
  if (f.kind !== "EC") return "";
  const curve = String(params["namedCurve"] ?? "");
  if (!curves.has(curve)) throw notSupported(`Unrecognized or unimplemented EC curve "${curve}" requested.`);
  return curve;
}

/** The algorithm member of an asymmetric key. */
export function pairAlgorithm(f: Family, hash: string | undefined, detail: { bits?: number; exponent?: Uint8Array; curve?: string }): KeyAlgorithm {
  if (f.kind === "RSA") return { name: f.name, hash: { name: hash! }, modulusLength: detail.bits!, publicExponent: detail.exponent! };
  if (f.kind === "EC") return { name: f.name, namedCurve: detail.curve! };
  return f.name === "NODE-ED25519" ? { name: f.name, namedCurve: f.name } : { name: f.name };
}

export function hashFor(f: Family, params: Record<string, any>): string | undefined {
  if (f.kind !== "RSA" && f.name !== "HMAC") return undefined;
  if (params["hash"] === undefined) throw new TypeError('Missing field "hash" in "algorithm".');
  return hashName(params["hash"]);
}

/** Bits of the block of a hash: the length of an HMAC key that nobody gave. */
export const blockBits: Record<string, number> = { MD5: 512, "SHA-1": 512, "SHA-256": 512, "SHA-384": 1024, "SHA-512": 1024 };

export function aesLength(n: unknown, what: string): number {
  const bits = Number(n);
  if (bits === 128 || bits === 192 || bits === 256) return bits;
  throw what === "Imported" ? dataError(`Imported AES key length must be 128, 192, or 256 bits but provided ${bits}.`) : operationError(`Generated AES key length must be 128, 192, or 256 bits but requested ${bits}.`);
}
