// SubtleCrypto.
import { type BufferSource, viewOf } from "./bytes";
import { digest } from "./digest";

export class SubtleCrypto {
  async digest(algorithm: unknown, data: BufferSource): Promise<ArrayBuffer> { return digest(algorithm, viewOf(data)); }
  constructor(_token: unknown) {}
}
