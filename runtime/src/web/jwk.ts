// JSON Web Keys, as crypto.subtle reads and writes them.
import { dataError, type Family } from "./algorithms";
import { atob, btoa } from "./encoding";
import type { KeyAlgorithm, Usage } from "./keys";

export type JsonWebKey = Record<string, any>;

export function toBase64url(b: Uint8Array): string {
  let s = "";
  for (const c of b) s += String.fromCharCode(c);
  return btoa(s).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromBase64url(s: unknown): Uint8Array | undefined {
  if (typeof s !== "string" || /[^A-Za-z0-9_-]/.test(s)) return undefined;
  try {
    return Uint8Array.from(atob(s.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

const kindWord = (f: Family) => (f.kind === "secret" ? "Symmetric" : "Asymmetric");

/** Checks the members that speak of use. */
export function checkUse(jwk: JsonWebKey, f: Family, usages: readonly Usage[], extractable: boolean): void {
  if (extractable && jwk["ext"] === false) throw dataError(`JWK ext field for "${f.name}" is set to false but extractable is true`);
  if (jwk["use"] !== undefined && usages.length > 0) {
    const wanted = usages.some((u) => u === "sign" || u === "verify") ? "sig" : "enc";
    if (f.kind !== "derive" && jwk["use"] !== wanted) throw dataError(`${kindWord(f)} "jwk" key must have a "use" of "${wanted}", not "${jwk["use"]}".`);
  }
  const ops = jwk["key_ops"];
  if (ops === undefined) return;
  if (!Array.isArray(ops) || new Set(ops).size < ops.length) throw dataError('A JSON Web Key\'s "key_ops" must be a list without duplicates.');
  for (const u of usages) if (!ops.includes(u)) throw dataError(`"jwk" key missing usage "${u}", in "key_ops".`);
}

const digits = (hash: string | undefined) => (hash ?? "").slice(4); // "SHA-256" is 256

/** The "alg" of a key; undefined where there is none. */
export function algOf(a: KeyAlgorithm): string | undefined {
  const hash = a.hash?.name;
  switch (a.name) {
    case "HMAC": return "HS" + digits(hash);
    case "RSASSA-PKCS1-v1_5": return "RS" + digits(hash);
    case "RSA-PSS": return "PS" + digits(hash);
    case "RSA-OAEP": return hash === "SHA-1" ? "RSA-OAEP" : "RSA-OAEP-" + digits(hash);
    case "ECDSA": return a.namedCurve === "P-521" ? "ES512" : "ES" + digits("SHA-" + a.namedCurve!.slice(2));
    case "Ed25519": return "EdDSA";
  }
  return a.name.startsWith("AES-") ? `A${a.length}${a.name.slice(4)}` : undefined;
}

export function checkAlg(jwk: JsonWebKey, algorithm: KeyAlgorithm): void {
  const alg = jwk["alg"];
  const wanted = algOf(algorithm);
  if (alg === undefined || wanted === undefined || alg === wanted || (algorithm.name === "Ed25519" && alg === "Ed25519")) return;
  throw dataError(`${algorithm.length !== undefined && algorithm.modulusLength === undefined ? "Symmetric" : "Asymmetric"} "jwk" key contains invalid "alg" value "${alg}", expected "${wanted}".`);
}

/** All members that workerd's JsonWebKey has, absent ones undefined. */
export function fullJwk(members: JsonWebKey): JsonWebKey {
  const all: JsonWebKey = {};
  for (const k of ["kty", "use", "key_ops", "alg", "ext", "crv", "x", "y", "d", "n", "e", "p", "q", "dp", "dq", "qi", "oth", "k"]) all[k] = members[k];
  return all;
}
