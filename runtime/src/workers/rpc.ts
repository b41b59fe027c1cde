// RPC sessions over pipes of the host, and the kinds of values beside stubs that they carry.

import { deserialize, serialize, sync, tellSection } from "../host";
import type { Kind } from "../rpc/codec";
import { Remote, Session } from "../rpc/session";
import { LocalHook, stubFor } from "../rpc/stub";
import { hookOf } from "../rpc/target";
import { Headers, } from "../web/headers";
import { Request, Response } from "../web/http";
import { ReadableStream } from "../web/streams";
import { AbortController, AbortSignal } from "../web/abort";
import { type Actor, current } from "./actor";
import { RpcTarget } from "../rpc/target";

const sendHost = sync("pipe.send");
const closeHost = sync("pipe.close");

const clone = { serialize, deserialize };

function session(actor: Actor, pipe: number, main: unknown, keepOpen: boolean): Session {
  const s: Session = new Session({
    transport: {
      send: (bytes) => {
        tellSection();
        sendHost(pipe, bytes);
      },
      close: (reason) => {
        actor.pipes.delete(pipe);
        closeHost(pipe, reason?.message);
        if (main !== undefined) actor.check();
      },
    },
    clone,
    main,
    kinds,
    keepOpen,
  });
  actor.pipes.set(pipe, s);
  return s;
}

/**
 * The main object at the other end of pipes that open makes. A session belongs to the actor that opened it: a stub that
 * is kept in the global scope, as those of env are, opens one for each that calls through it.
 */
export function connect(open: () => number): Remote {
  let owner: Actor | undefined;
  return new Remote((last) => {
    const actor = current();
    if (actor === undefined) throw new Error("Disallowed operation called within global scope: RPC calls are not allowed there.");
    if (last?.open && owner === actor) return last;
    owner = actor;
    tellSection();
    return session(actor, open(), undefined, false);
  });
}

/** Serves a session that somebody opened with us. */
export function accept(actor: Actor, pipe: number, main: object): void {
  session(actor, pipe, main, true);
}

// ---- kinds

/** A stream crosses as a stub that is pulled; only bytes may flow, as on the platform. */
class StreamSource extends RpcTarget {
  readonly #reader: any;
  constructor(stream: any) {
    super();
    this.#reader = stream.getReader();
  }
  async read(): Promise<Uint8Array | null> {
    const { done, value } = await this.#reader.read();
    if (done) return null;
    if (!(value instanceof Uint8Array || value instanceof ArrayBuffer || ArrayBuffer.isView(value))) {
      throw new TypeError("Received non-byte value in a ReadableStream that crosses RPC; only byte streams can.");
    }
    return value as Uint8Array;
  }
  async cancel(reason: unknown): Promise<void> {
    await this.#reader.cancel(reason);
  }
  [Symbol.dispose](): void {
    this.#reader.cancel().catch(() => {});
  }
}

function fromSource(source: any): any {
  return new ReadableStream({
    type: "bytes",
    async pull(c: any) {
      const chunk = await source.read();
      if (chunk === null) {
        c.close();
        c.byobRequest?.respond(0);
        source[Symbol.dispose]();
      } else c.enqueue(chunk instanceof Uint8Array ? chunk : new Uint8Array(chunk.buffer ?? chunk));
    },
    async cancel(reason: unknown) {
      await source.cancel(reason);
      source[Symbol.dispose]();
    },
  } as any);
}

const streamKind: Kind = {
  name: "stream",
  encode: (value, encoder) => (value instanceof ReadableStream ? encoder.walk(new StreamSource(value), 1) : undefined),
  decode: (source) => fromSource(source),
};

const headersKind: Kind = {
  name: "headers",
  encode: (value) => (value instanceof Headers ? [...(value as any)] : undefined),
  decode: (pairs) => new Headers(pairs),
};

const requestKind: Kind = {
  name: "request",
  encode(value, encoder) {
    if (!(value instanceof Request)) return undefined;
    const r = value as any;
    return { url: r.url, method: r.method, headers: [...r.headers], body: r.body ? encoder.walk(r.body, 1) : null, redirect: r.redirect, cf: r.cf };
  },
  decode: ({ url, ...init }) => new Request(url, init.body ? { ...init, duplex: "half" } : init),
};

const responseKind: Kind = {
  name: "response",
  encode(value, encoder) {
    if (!(value instanceof Response)) return undefined;
    const r = value as any;
    return { status: r.status, statusText: r.statusText, headers: [...r.headers], body: r.body ? encoder.walk(r.body, 1) : null };
  },
  decode: ({ body, ...init }) => new Response(body, init),
};

/** A signal crosses as something to wait for: the other side's signal aborts when this one does. */
class SignalSource extends RpcTarget {
  readonly #signal: AbortSignal;
  constructor(signal: AbortSignal) {
    super();
    this.#signal = signal;
  }
  aborted(): Promise<unknown> {
    const s = this.#signal as any;
    if (s.aborted) return Promise.resolve(s.reason);
    return new Promise((resolve) => s.addEventListener("abort", () => resolve(s.reason), { once: true }));
  }
}

const signalKind: Kind = {
  name: "signal",
  encode: (value, encoder) => (value instanceof AbortSignal ? encoder.walk(new SignalSource(value), 1) : undefined),
  decode(source) {
    const controller = new AbortController();
    const held = source.dup(); // lent for the call only, but the signal may outlive it
    held.aborted().then(
      (reason: unknown) => controller.abort(reason),
      () => {}, // the session ended first
    ).finally(() => held[Symbol.dispose]());
    return controller.signal;
  },
};

const kinds: readonly Kind[] = [signalKind, streamKind, headersKind, requestKind, responseKind];

export { LocalHook, hookOf, stubFor };
