// Serves the cases of all fixtures, and describes their outcomes so that two engines can be compared.
import { DurableObject, WorkerEntrypoint, RpcTarget } from "cloudflare:workers";
import { fixtures } from "fixtures";

const typedArrays = new Set(["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
  "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"]);

const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");

export function describe(value, depth = 0) {
  if (depth > 12) return "…";
  const next = (v) => describe(v, depth + 1);
  switch (typeof value) {
    case "undefined": return { $: "undefined" };
    case "bigint": return { $: "bigint", value: String(value) };
    case "symbol": return { $: "symbol", value: String(value) };
    case "function": return { $: "function" };
    case "number": return Object.is(value, -0) ? { $: "-0" } : Number.isFinite(value) ? value : { $: String(value) };
    case "string": case "boolean": return value;
  }
  if (value === null) return null;
  if (Array.isArray(value)) return Array.from(value, next);
  if (value instanceof Error) return describeError(value, next);
  const name = value.constructor?.name ?? "null prototype";
  if (value instanceof ArrayBuffer) return { $: name, hex: hex(value) };
  if (typedArrays.has(name)) return { $: name, hex: hex(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength)) };
  if (value instanceof Map) return { $: name, entries: [...value].map(next) };
  if (value instanceof Set) return { $: name, values: [...value].map(next) };
  if (value instanceof Date) return { $: name, value: +value };
  if (value instanceof RegExp) return { $: name, value: String(value) };
  if (typeof Headers !== "undefined" && value instanceof Headers) return { $: name, entries: [...value].map(next) };
  if (typeof URL !== "undefined" && value instanceof URL) return { $: name, href: value.href };
  const fields = Object.fromEntries(Object.keys(value).sort().map((k) => [k, next(value[k])]));
  return name === "Object" ? fields : { $: name, ...fields };
}

function describeError(error, next) {
  const own = Object.fromEntries(Object.keys(error).filter((k) => !["stack"].includes(k)).sort().map((k) => [k, next(error[k])]));
  return { $error: error.name, class: error.constructor?.name, message: error.message, ...(Object.keys(own).length ? { own } : {}) };
}

async function outcome(run) {
  try {
    return { value: describe(await run()) };
  } catch (error) {
    return { threw: describe(error) };
  }
}

export class Cell extends DurableObject {
  async fetch(request) {
    const [, area, name] = new URL(request.url).pathname.split("/");
    const f = fixtures[area];
    if (f.fetchCases?.[name]) return f.fetchCases[name].call(this, request);
    return Response.json(await outcome(() => f.cellCases[name].call(this, this.ctx, this.env, request)));
  }
  // What cases of the area rpc call.
  greet(name) { return `hello ${name}`; }
  echo(...args) { return args; }
  get property() { return { x: { y: 7 } }; }
  counter() { return new Counter(); }
  waitForAbort(signal) { return new Promise((done) => { const f = () => done(["aborted", signal.reason?.message]); signal.aborted ? f() : signal.addEventListener("abort", f); }); }
  async callback(f, x) { return await f(x); }
  throws(kind) { throw fixtures.rpc.errors[kind](); }
  returns(kind) { return fixtures.rpc.values[kind](); }
  async runCase(area, name, ...args) { return await fixtures[area].methods[name].call(this, this.ctx, ...args); }
  async alarm(info) { return fixtures.alarm?.onAlarm?.call(this, this.ctx, info); }
  webSocketMessage(ws, message) { return fixtures.websocket?.onMessage?.call(this, this.ctx, ws, message); }
  webSocketClose(ws, code, reason, wasClean) { return fixtures.websocket?.onClose?.call(this, this.ctx, ws, code, reason, wasClean); }
}

class Counter extends RpcTarget {
  #n = 0;
  own = 1;
  inc(by = 1) { return (this.#n += by); }
  get value() { return this.#n; }
  nested() { return { deep: { counter: this } }; }
}

export class Named extends WorkerEntrypoint {
  hi(x) { return `named ${x}`; }
  fetch() { return new Response("named fetch"); }
}

export default {
  async fetch(request, env, ctx) {
    const url = new URL(request.url);
    const [, area, name] = url.pathname.split("/");
    if (area === "-") return Response.json(Object.fromEntries(Object.entries(fixtures).map(([a, f]) =>
      [a, [...Object.keys(f.cases ?? {}), ...Object.keys(f.cellCases ?? {}), ...Object.keys(f.routes ?? {})]])));
    const f = fixtures[area];
    if (area === "warm") { // makes the node that was asked the owner of a cell
      await env.CELL.get(env.CELL.idFromName(decodeURIComponent(name))).property;
      return new Response("warm");
    }
    if (f?.sockets?.[name]) return f.sockets[name](request, env, ctx);
    if (f?.routes?.[name]) return f.routes[name](request, env, ctx);
    if (request.method === "POST") await request.text(); // an unread body would cost the connection
    if (f?.cases?.[name]) return Response.json(await outcome(() => f.cases[name](env, ctx, request)));
    if (f?.cellCases?.[name] || f?.fetchCases?.[name]) return env.CELL.get(env.CELL.idFromName(`${area}/${name}`)).fetch(request.url, { headers: request.headers });
    return new Response(`no case ${area}/${name}`, { status: 404 });
  },
};
