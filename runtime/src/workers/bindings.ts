// env: what a deployment gives a script, made from its bindings.

import { async, sync } from "../host";
import { type Outgoing, Request, type Response, fetch, pumpToHost, requestForHost, responseFromHost, setFetcher } from "../web/http";
import { current } from "./actor";
import { connect } from "./rpc";
import { socketFromHost } from "./websocket";
import { property } from "../rpc/stub";
import { DOMException } from "../web/exception";

const fetchOut = async("fetch.out");
const fetchCell = async("fetch.cell");
const fetchService = async("fetch.service");
const cancelFetch = sync("fetch.cancel");
const openBody = sync<number>("body.open");
const rpcCell = sync<number>("rpc.cell");
const rpcService = sync<number>("rpc.service");
const idFromName = sync<string>("id.fromName");
const idUnique = sync<string>("id.unique");
const idParse = sync<string>("id.parse");

export interface Binding {
  name: string;
  type: string;
  text?: string;
  json?: unknown;
  entrypoint?: string;
}

let lastCall = 0;

type Send = (call: number, method: string, url: string, headers: string, body: unknown, stream: number, length: number, redirect: string) => Promise<any>;

/** Sends a request and makes a Response of what comes back. */
async function send(request: Request, how: Send, remote = false): Promise<Response> {
  const out = requestForHost(request);
  const call = ++lastCall;
  const { body, stream, pump } = forHost(out.body);
  const abort = () => cancelFetch(call);
  out.signal?.throwIfAborted();
  out.signal?.addEventListener("abort", abort);
  try {
    const answer = how(call, out.method, out.url, out.headers.join("\n"), body, stream, out.length ?? -1, out.redirect);
    pump?.();
    const [status, statusText, headers, bytes, id, socket] = await answer;
    return response(out.url, status, statusText, headers, bytes, id, socket);
  } catch (error) {
    if (remote && error instanceof Error && !(error instanceof DOMException) && Object.isExtensible(error)) (error as any).remote = true;
    throw error;
  } finally {
    out.signal?.removeEventListener("abort", abort);
  }
}

function response(url: string, status: number, statusText: string, headers: string, bytes: ArrayBuffer | undefined, id: number, socket: number): Response {
  const list = headers === "" ? [] : headers.split("\n");
  return responseFromHost(status, statusText, list, bytes ?? id, url, false, socket ? socketFromHost(socket) : null);
}

/** A body as it crosses: bytes or text at once, or the id of a stream that is pumped once the call is on its way. */
export function forHost(body: Outgoing): { body: unknown; stream: number; pump: (() => void) | undefined } {
  if (body === null || typeof body === "string" || body instanceof Uint8Array) return { body: body ?? undefined, stream: 0, pump: undefined };
  const stream = openBody();
  return { body: undefined, stream, pump: () => void pumpToHost(stream, body) };
}

setFetcher((request) => send(request, fetchOut as Send));

/** Something with a fetch method and RPC methods: a service binding or the stub of a cell. */
export class Fetcher {
  fetch(_input: unknown, _init?: unknown): Promise<Response> {
    throw new TypeError("Illegal invocation");
  }
  connect(): never {
    throw new Error("connect() is not available on this binding.");
  }
}

export class DurableObject_ extends Fetcher {}

/** A proxy: own fields and methods first, every other name is an RPC method. */
function stubProxy(base: object, how: Send, open: () => number): any {
  const remote = connect(open);
  const own: Record<string | symbol, unknown> = {
    fetch: (input: unknown, init?: unknown) => send(new Request(input, init as any), how, true),
  };
  return new Proxy(base, {
    get(target, name, receiver) {
      if (name in own) return own[name];
      if (typeof name === "symbol" || name in target) return Reflect.get(target, name, receiver);
      if (name === "then" || name === "catch" || name === "finally") return undefined;
      return property(remote, [name]);
    },
    has: (target, name) => name in own || name in target || typeof name === "string",
  });
}

export class DurableObjectId {
  readonly #hex: string;
  readonly name?: string;
  constructor(hex: string, name?: string) {
    this.#hex = hex;
    if (name !== undefined) this.name = name;
  }
  toString(): string {
    return this.#hex;
  }
  equals(other: unknown): boolean {
    return other instanceof DurableObjectId && other.#hex === this.#hex;
  }
}

export class DurableObjectStub extends Fetcher {
  constructor(readonly id: DurableObjectId) {
    super();
  }
  get name(): string | undefined {
    return this.id.name;
  }
}

export class DurableObjectNamespace {
  readonly #n: number;
  constructor(n: number) {
    this.#n = n;
  }
  newUniqueId(options?: { jurisdiction?: string }): DurableObjectId {
    if (options?.jurisdiction !== undefined) throw noJurisdiction();
    return new DurableObjectId(idUnique(this.#n));
  }
  idFromName(name: unknown): DurableObjectId {
    const text = String(name);
    return new DurableObjectId(idFromName(this.#n, text), text);
  }
  idFromString(text: unknown): DurableObjectId {
    return new DurableObjectId(idParse(this.#n, String(text)));
  }
  get(id: DurableObjectId, _options?: unknown): any {
    if (!(id instanceof DurableObjectId)) {
      throw new TypeError("Failed to execute 'get' on 'DurableObjectNamespace': parameter 1 is not of type 'DurableObjectId'.");
    }
    const object = idParse(this.#n, id.toString());
    const n = this.#n;
    const name = id.name ?? "";
    const how: Send = (...args) => (fetchCell as any)(n, object, name, ...args);
    return stubProxy(new DurableObjectStub(id), how, () => rpcCell(n, object, name));
  }
  getByName(name: unknown, options?: unknown): any {
    return this.get(this.idFromName(name), options);
  }
  getExisting(id: DurableObjectId): any {
    return this.get(id);
  }
  jurisdiction(_name: unknown): never {
    throw noJurisdiction();
  }
}

function noJurisdiction(): Error {
  return new Error("Jurisdiction restrictions are not implemented: all cells of a fleet live in its one bucket.");
}

function service(n: number): any {
  const how: Send = (...args) => (fetchService as any)(n, ...args);
  return stubProxy(new Fetcher(), how, () => rpcService(n));
}

/** Makes env. What no binding here knows was refused at deploy. */
export function makeEnv(bindings: Binding[]): Record<string, unknown> {
  const env: Record<string, unknown> = {};
  bindings.forEach((b, n) => {
    env[b.name] = make(b, n);
  });
  return env;
}

function make(b: Binding, n: number): unknown {
  switch (b.type) {
    case "plain_text":
    case "secret_text":
      return b.text ?? "";
    case "json":
      return b.json;
    case "durable_object_namespace":
      return new DurableObjectNamespace(n);
    case "service":
      return service(n);
    case "version_metadata":
      return b.json ?? { id: "", tag: "", timestamp: "" };
  }
  throw new Error(`The binding ${b.name} is of the type ${b.type}, which this celld does not serve.`);
}

export { current, fetch };
