// How requests and responses cross between JavaScript and Go; what the engine uses of this folder. And fetch itself.
import type { Outgoing } from "./body";
import { isBufferSource, viewOf } from "./bytes";
import { job, op } from "./ops";
import { Request, type RequestInit } from "./request";
import type { Response } from "./response";
import { type ReadableStream, notBytes } from "./streams";

export { type OutgoingRequest, Request, abortRequest, requestForHost, requestFromHost } from "./request";
export { type OutgoingResponse, Response, responseForHost, responseFromHost } from "./response";
export type { Outgoing } from "./body";

const writeHost = job<void>("body.write");
const closeHost = op<void>("body.close");
const abortHost = op<void>("body.abort");

/** Whether a body must be pumped; null, strings and bytes cross as they are. */
export function isStream(body: Outgoing): body is ReadableStream {
  return typeof body === "object" && body !== null && !(body instanceof Uint8Array);
}

/** Writes a stream to the host's body id, as fast as it takes it. Never rejects: what goes wrong aborts the body. */
export async function pumpToHost(id: number, stream: ReadableStream): Promise<void> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return closeHost(id);
      if (!isBufferSource(value)) throw new TypeError(notBytes);
      if (value.byteLength > 0) await writeHost(id, viewOf(value));
    }
  } catch (error) {
    abortHost(id, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
    reader.cancel(error).catch(() => {});
  }
}

type Fetcher = (request: Request) => Promise<Response>;

let send: Fetcher = async () => { throw new Error("fetch() has no network: the engine did not provide one."); };

/** How requests reach the world; the engine's part. */
export function setFetcher(f: Fetcher): void {
  send = f;
}

export async function fetch(input: unknown, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  if (!/^https?:/.test(request.url)) throw new TypeError(`Fetch API cannot load: ${request.url}`);
  const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined);
  if (!signal) return send(request);
  signal.throwIfAborted();
  let stop!: () => void;
  const aborted = new Promise<never>((_, reject) => { stop = () => reject(signal.reason); });
  signal.addEventListener("abort", stop);
  try {
    return await Promise.race([send(request), aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
