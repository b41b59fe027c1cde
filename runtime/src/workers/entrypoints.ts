// The base classes of cloudflare:workers, and the ctx that handlers get.

import { async, sync } from "../host";
import { offerMethodsOf } from "../rpc/dispatch";
import { RpcPromise, RpcProperty, RpcStub } from "../rpc/stub";
import { RpcTarget } from "../rpc/target";
import { type Actor, current } from "./actor";
import type { DurableObjectId } from "./bindings";
import { DurableObjectStorage } from "./storage";
import { Sockets } from "./websocket";

export class WorkerEntrypoint {
  protected ctx: unknown;
  protected env: unknown;
  constructor(ctx: unknown, env: unknown) {
    this.ctx = ctx;
    this.env = env;
  }
}

export class DurableObject {
  protected ctx: unknown;
  protected env: unknown;
  constructor(ctx: unknown, env: unknown) {
    this.ctx = ctx;
    this.env = env;
  }
}

offerMethodsOf(WorkerEntrypoint);
offerMethodsOf(DurableObject);

/** ctx of a stateless handler. */
export class ExecutionContext {
  readonly #actor: Actor;
  readonly props: unknown;
  constructor(actor: Actor, props: unknown = {}) {
    this.#actor = actor;
    this.props = props;
  }
  waitUntil(promise: unknown): void {
    this.#actor.hold(watched(promise));
  }
  passThroughOnException(): void {}
  abort(reason?: unknown): never {
    throw reason ?? new Error("The execution context was aborted.");
  }
}

/** A rejection is reported, not swallowed: nobody else looks at it. */
function watched(promise: unknown): Promise<unknown> {
  return Promise.resolve(promise);
}

/** waitUntil of cloudflare:workers. */
export function waitUntil(promise: unknown): void {
  const actor = current();
  if (actor === undefined) throw new Error("waitUntil() can only be called within a handler.");
  actor.hold(watched(promise));
}

/** ctx of a cell. */
export class DurableObjectState {
  readonly #actor: Actor;
  readonly id: DurableObjectId;
  readonly storage: any;
  readonly props: unknown = {};
  readonly #sockets = new Sockets();
  constructor(actor: Actor, id: DurableObjectId) {
    this.#actor = actor;
    this.id = id;
    this.storage = new DurableObjectStorage({
      guard: actor.guard,
      blockConcurrencyWhile: (f) => actor.blockConcurrencyWhile(f),
      deleteAllDeletesAlarm: true,
    });
  }
  waitUntil(promise: unknown): void {
    Promise.resolve(promise);
  }
  blockConcurrencyWhile<R>(f: () => Promise<R>): Promise<R> {
    this.#actor.guard();
    return this.#actor.blockConcurrencyWhile(f);
  }
  acceptWebSocket(ws: any, tags?: unknown[]): void {
    this.#actor.guard();
    this.#sockets.accept(ws, tags);
  }
  getWebSockets(tag?: string): unknown[] {
    return this.#sockets.list(tag);
  }
  getTags(ws: any): string[] {
    return this.#sockets.tags(ws);
  }
  setWebSocketAutoResponse(pair?: any): void {
    this.#sockets.auto = pair ?? null;
  }
  getWebSocketAutoResponse(): unknown {
    return this.#sockets.auto;
  }
  getWebSocketAutoResponseTimestamp(ws: any): Date | null {
    return this.#sockets.answered(ws);
  }
  setHibernatableWebSocketEventTimeout(_ms?: number): void {}
  getHibernatableWebSocketEventTimeout(): number | null {
    return null;
  }
  abort(reason?: unknown): never {
    this.#actor.guard();
    const error = reason instanceof Error ? reason : new Error(reason === undefined ? "Application called abort() to reset Durable Object." : String(reason));
    this.#actor.reset(error);
    throw error;
  }
}

export { RpcPromise, RpcProperty, RpcStub, RpcTarget, async, sync };
