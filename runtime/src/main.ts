// What Go calls. It loads into V8's snapshot: nothing here may call the host while it is loaded.

import { deserialize, sync } from "./host";
import { RpcStub } from "./rpc/stub";
import { RpcTarget } from "./rpc/target";
import { errorOf } from "./web/exception";
import { Request, Response, abortRequest, requestFromHost, responseForHost } from "./web/http";
import { install } from "./web/index";
import { type Actor, actorOf, dropActor } from "./workers/actor";
import { type Binding, DurableObjectId, forHost, makeEnv } from "./workers/bindings";
import { DurableObject, DurableObjectState, ExecutionContext, WorkerEntrypoint, waitUntil } from "./workers/entrypoints";
import { describeError } from "./workers/errors";
import { accept } from "./workers/rpc";
import { timers } from "./workers/timers";
import { socketForHost } from "./workers/websocket";

const respond = sync("worker.respond");
const fail = sync("worker.fail");

install(globalThis);
for (const [name, f] of Object.entries(timers)) {
  Object.defineProperty(globalThis, name, { value: f, writable: true, configurable: true, enumerable: false });
}

interface Spec {
  script: string;
  bindings: Binding[];
  classes: { name: string; namespace: string }[];
}

let env: Record<string, unknown> = {};
let exported: Record<string, any> = {};

/** Called once before the script's first line, for env, and once after its last, for its exports. */
function load(text: string, namespace: Record<string, any> | undefined): string {
  const spec: Spec = JSON.parse(text);
  if (namespace === undefined) {
    env = makeEnv(spec.bindings);
    return "{}";
  }
  exported = namespace;
  const entrypoints: string[] = [];
  const classes: string[] = [];
  for (const name of Object.keys(namespace)) {
    const value = namespace[name];
    if (typeof value === "function" && value.prototype !== undefined) {
      if (value.prototype instanceof WorkerEntrypoint) entrypoints.push(name);
      else classes.push(name);
    } else if (value !== null && typeof value === "object") entrypoints.push(name);
  }
  return JSON.stringify({ entrypoints, classes });
}

// ---- modules

const builtins: Record<string, () => Record<string, unknown>> = {
  "cloudflare:workers": () => ({ DurableObject, WorkerEntrypoint, RpcTarget, RpcStub, waitUntil, env }),
};

/** A module of the runtime, or an error that names what was imported. */
function builtin(name: string): Record<string, unknown> {
  const make = builtins[name];
  if (make === undefined) throw new Error(`No such module "${name}".`);
  return make();
}

/** The exports of a file that is not JavaScript. */
function fileModule(kind: string, content: any): Record<string, unknown> {
  return { default: kind === "json" ? JSON.parse(content) : content };
}

// ---- events

/** A request for a stateless entrypoint, or for the cell that the actor is. */
function fetch(id: number, call: number, entry: string, method: string, url: string, headers: string, bytes: ArrayBuffer | undefined, stream: number, cf: string): void {
  const actor = actorOf(id);
  let request: Request | undefined;
  actor.calls.set(call, () => request && abortRequest(request));
  try {
    request = requestFromHost(method, url, headers === "" ? [] : headers.split("\n"), bytes ?? stream, cf === "" ? undefined : () => JSON.parse(cf));
    const result = actor.isCell ? cellFetch(actor, request) : entryFetch(actor, entry, request);
    if (result instanceof Response) answer(actor, call, result);
    else Promise.resolve(result).then((r) => answer(actor, call, r), (e) => refuse(actor, call, e));
  } catch (error) {
    refuse(actor, call, error);
  }
}

function cellFetch(actor: Actor, request: Request): unknown {
  const { instance } = actor;
  if (typeof instance.fetch !== "function") throw new TypeError("Handler does not export a fetch() function.");
  return instance.fetch(request);
}

function entryFetch(actor: Actor, entry: string, request: Request): unknown {
  const handler = exported[entry];
  const ctx = new ExecutionContext(actor);
  if (typeof handler === "function") {
    const instance = new handler(ctx, env);
    if (typeof instance.fetch !== "function") throw new TypeError("Handler does not export a fetch() function.");
    return instance.fetch(request);
  }
  if (handler === undefined || handler === null) throw new TypeError(`The script has no entrypoint named "${entry}".`);
  if (typeof handler.fetch !== "function") throw new TypeError("Handler does not export a fetch() function.");
  return handler.fetch(request, env, ctx);
}

function answer(actor: Actor, call: number, response: unknown): void {
  if (!(response instanceof Response)) {
    return refuse(actor, call, new TypeError("Incorrect type for Promise: the Promise did not resolve to 'Response'."));
  }
  if (!actor.calls.delete(call)) return; // the caller is gone
  try {
    const out = responseForHost(response);
    const socket = out.webSocket ? socketForHost(out.webSocket as any) : 0;
    const { body, stream, pump } = forHost(out.body);
    respond(call, out.status, out.statusText, out.headers.join("\n"), body, stream, out.length ?? -1, out.encodeBody === "manual" ? 1 : 0, socket);
    pump?.();
  } catch (error) {
    return refuseNow(actor, call, error);
  }
  actor.check();
}

function refuse(actor: Actor, call: number, error: unknown): void {
  if (actor.calls.delete(call)) refuseNow(actor, call, error);
}

function refuseNow(actor: Actor, call: number, error: unknown): void {
  const e = describeError(error);
  fail(call, e.name, e.message, e.stack, e.clone, e.flags);
  actor.check();
}

/** The caller of a call went away. */
function abort(id: number, call: number): void {
  const actor = actorOf(id);
  const stop = actor.calls.get(call);
  if (stop === undefined) return;
  stop();
  if (!actor.isCell) {
    actor.calls.delete(call);
    actor.check();
  }
}

/** Runs the constructor of a cell; it is done when the critical sections that it opened are. */
function construct(id: number, call: number, className: string, object: string, name: string): void {
  const actor = actorOf(id, true);
  actor.calls.set(call, () => {});
  const done = () => {
    actor.calls.delete(call);
    respond(call, 200, "", "", undefined, 0, -1, 0, 0);
  };
  try {
    const Class = exported[className];
    if (typeof Class !== "function") throw new TypeError(`The script exports no class named "${className}".`);
    const state = new DurableObjectState(actor, new DurableObjectId(object, name === "" ? undefined : name));
    actor.instance = new Class(state, env);
    const section = actor.section;
    if (section === undefined) done();
    else section.then(done, (e) => refuse(actor, call, e));
  } catch (error) {
    refuse(actor, call, error);
  }
}

function alarm(id: number, call: number, retryCount: number, isRetry: boolean): void {
  const actor = actorOf(id, true);
  actor.calls.set(call, () => {});
  const done = () => {
    if (actor.calls.delete(call)) respond(call, 200, "", "", undefined, 0, -1, 2, 0);
  };
  try {
    if (typeof actor.instance.alarm !== "function") throw new TypeError("Handler does not export an alarm() function.");
    Promise.resolve(actor.instance.alarm({ retryCount, isRetry })).then(done, (e) => refuse(actor, call, e));
  } catch (error) {
    refuse(actor, call, error);
  }
}

function scheduled(): void {}

/** Somebody opens an RPC session with an entrypoint, or with the cell. */
function rpcOpen(id: number, pipe: number, entry: string): void {
  const actor = actorOf(id);
  if (actor.isCell) return accept(actor, pipe, actor.instance);
  const handler = exported[entry];
  actor.hold(new Promise(() => {})); // alive until the session ends
  accept(actor, pipe, typeof handler === "function" ? new handler(new ExecutionContext(actor), env) : handler);
}

function pipeMessage(id: number, pipe: number, bytes: ArrayBuffer): void {
  actorOf(id).pipes.get(pipe)?.receive(bytes);
}

function pipeClosed(id: number, pipe: number, reason: unknown): void {
  const actor = actorOf(id);
  const end = actor.pipes.get(pipe);
  actor.pipes.delete(pipe);
  end?.closed(reason === undefined ? undefined : reason instanceof Error ? reason : new Error(String(reason)));
}

function socketFrame(id: number, socket: number, data: string | ArrayBuffer): void {
  actorOf(id).sockets.get(socket)?.frame(data);
}

function socketClosed(id: number, socket: number, _data: undefined, code: number, reason: string, clean: boolean): void {
  actorOf(id).sockets.get(socket)?.closed(code, reason, clean);
}

(globalThis as any).__celld = {
  load, builtin, fileModule, makeError: errorOf, fetch, construct, alarm, abort, drop: dropActor, scheduled,
  rpcOpen, pipeMessage, pipeClosed, socketFrame, socketClosed, deserialize,
};
