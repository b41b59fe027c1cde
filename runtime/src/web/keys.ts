// CryptoKey: what it says of itself, and its material, which only the files of WebCrypto can reach.

export interface KeyAlgorithm {
  name: string;
  hash?: { name: string };
  length?: number;
  modulusLength?: number;
  publicExponent?: Uint8Array;
  namedCurve?: string;
}

export type KeyType = "secret" | "private" | "public";
export type Usage = "encrypt" | "decrypt" | "sign" | "verify" | "deriveKey" | "deriveBits" | "wrapKey" | "unwrapKey";

/** The order in which usages are listed. */
const order: Usage[] = ["encrypt", "decrypt", "sign", "verify", "deriveKey", "deriveBits", "wrapKey", "unwrapKey"];

const token = Symbol("internal");

export class CryptoKey {
  #type: KeyType;
  #extractable: boolean;
  #algorithm: KeyAlgorithm;
  #usages: Usage[];
  #material: Uint8Array;

  constructor(secret: unknown, type: KeyType, extractable: boolean, algorithm: KeyAlgorithm, usages: Usage[], material: Uint8Array) {
    if (secret !== token) throw new TypeError("Illegal constructor");
    this.#type = type;
    this.#extractable = extractable;
    this.#algorithm = algorithm;
    this.#usages = order.filter((u) => usages.includes(u));
    this.#material = material;
  }

  get type(): KeyType { return this.#type; }
  get extractable(): boolean { return this.#extractable; }
  get algorithm(): KeyAlgorithm { return this.#algorithm; }
  get usages(): Usage[] { return this.#usages; }

  /** Secret keys: the bytes. Private keys: PKCS #8. Public keys: SPKI. */
  static material(k: CryptoKey): Uint8Array { return k.#material; }
}

export const materialOf = CryptoKey.material;
delete (CryptoKey as { material?: unknown }).material;

export function newKey(type: KeyType, extractable: boolean, algorithm: KeyAlgorithm, usages: Usage[], material: Uint8Array): CryptoKey {
  return new CryptoKey(token, type, extractable, algorithm, usages, material);
}
