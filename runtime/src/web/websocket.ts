// WebSocket, WebSocketPair and auto responses. Two sockets of a pair speak to each other here; a socket whose other
// end is outside has a Wire, which the engine provides.
import { Blob, blobBytes } from "./blob";
import { bufferOf, copyOf, encodeUTF8, isBufferSource } from "./bytes";
import { CloseEvent, ErrorEvent, Event, EventTarget, MessageEvent, handlerAttributes } from "./events";
import { DOMException } from "./exception";
import { queueMicrotask } from "./performance";

export type Message = string | ArrayBuffer;

/** Where what a socket sends goes. */
export interface Wire {
  send(message: string | Uint8Array): void;
  close(code: number | undefined, reason: string): void;
  /** The socket was accepted: what has arrived may be delivered. */
  accepted?(): void;
}

interface State {
  wire: Wire | undefined;
  accepted: boolean;
  hibernatable: boolean; // accepted by ctx.acceptWebSocket: events go to the object's handlers
  readyState: number;
  closeSent: boolean;
  closeReceived: boolean;
  binaryType: "blob" | "arraybuffer";
  url: string | null;
  protocol: string;
  extensions: string;
  queue: (() => void)[]; // what arrived before accept()
  attachment: unknown;
}

const states = new WeakMap<WebSocket, State>();

/** What the engine may see and set. */
export function stateOf(ws: WebSocket): State {
  return states.get(ws)!;
}

const inside = Symbol("made by the platform");
let defaultBinaryType: State["binaryType"] = "blob";

/** By compatibility date: "blob" since 2026-03-17, before it "arraybuffer". */
export function setDefaultBinaryType(type: State["binaryType"]): void {
  defaultBinaryType = type;
}

type Connect = (ws: WebSocket, url: string, protocols: string[]) => void;
let connect: Connect = () => { throw new Error("new WebSocket() has no network: the engine did not provide one."); };

/** How `new WebSocket(url)` reaches the world; the engine's part. */
export function setConnector(f: Connect): void {
  connect = f;
}

/** A socket for the engine to attach a wire to. */
export function newSocket(url: string | null = null): WebSocket {
  return new WebSocket(inside, url);
}

const tokenPattern = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

export class WebSocket extends EventTarget {
  static readonly READY_STATE_CONNECTING = 0;
  static readonly CONNECTING = 0;
  static readonly READY_STATE_OPEN = 1;
  static readonly OPEN = 1;
  static readonly READY_STATE_CLOSING = 2;
  static readonly CLOSING = 2;
  static readonly READY_STATE_CLOSED = 3;
  static readonly CLOSED = 3;

  constructor(url: unknown, protocols?: unknown) {
    super();
    const client = url !== inside;
    states.set(this, {
      wire: undefined, accepted: client, hibernatable: false, readyState: client ? 0 : 1, closeSent: false, closeReceived: false, binaryType: defaultBinaryType,
      url: client ? null : (protocols as string | null), protocol: "", extensions: "", queue: [], attachment: null,
    });
    if (!client) return;
    const address = clientURL(String(url));
    const list = protocols === undefined ? [] : Array.isArray(protocols) ? protocols.map(String) : [String(protocols)];
    for (const p of list) if (!tokenPattern.test(p)) throw new DOMException(`The protocol header token is invalid.`, "SyntaxError");
    if (new Set(list.map((p) => p.toLowerCase())).size < list.length) throw new DOMException("The subprotocol list has duplicates.", "SyntaxError");
    stateOf(this).url = address;
    connect(this, address, list);
  }

  get readyState(): number { return stateOf(this).readyState; }
  get url(): string | null { return stateOf(this).url; }
  get protocol(): string { return stateOf(this).protocol; }
  get extensions(): string { return stateOf(this).extensions; }
  get bufferedAmount(): number { return 0; }
  get binaryType(): string { return stateOf(this).binaryType; }
  set binaryType(v: string) { if (v === "blob" || v === "arraybuffer") stateOf(this).binaryType = v; }

  accept(_options?: { allowHalfOpen?: boolean }): void {
    const s = stateOf(this);
    if (s.hibernatable) throw new TypeError("Tried to accept() a WebSocket that was already accepted for hibernation.");
    if (s.accepted && s.url !== null && !s.wire) throw new TypeError("Websockets obtained from the 'new WebSocket()' constructor cannot call accept");
    if (s.accepted) return;
    s.accepted = true;
    s.wire?.accepted?.();
    for (const f of s.queue.splice(0)) queueMicrotask(f);
  }

  send(message: unknown): void {
    const s = stateOf(this);
    if (!s.accepted) throw new TypeError("You must call one of accept() or state.acceptWebSocket() on this WebSocket before sending messages.");
    if (s.readyState === 0) throw new DOMException("Failed to execute 'send' on 'WebSocket': Still in CONNECTING state.", "InvalidStateError");
    if (s.closeSent) throw new TypeError("Can't call WebSocket send() after close().");
    if (s.readyState === 3) return;
    s.wire?.send(outgoing(message));
  }

  close(code?: unknown, reason?: unknown): void {
    const s = stateOf(this);
    const n = code === undefined ? undefined : checkCode(Number(code));
    const text = reason === undefined ? "" : String(reason);
    if (n === undefined && reason !== undefined) throw new TypeError("If you specify a WebSocket close reason, you must also specify a code.");
    if (encodeUTF8(text).length > 123) throw new DOMException("WebSocket close reason must not be longer than 123 bytes when UTF-8 encoded.", "SyntaxError");
    if (!s.accepted) throw new TypeError("You must call one of accept() or state.acceptWebSocket() on this WebSocket before sending messages.");
    if (s.closeSent || s.readyState === 3) return;
    s.closeSent = true;
    s.readyState = s.closeReceived ? 3 : 2;
    s.wire?.close(n, text);
  }
}

for (const name of ["CONNECTING", "OPEN", "CLOSING", "CLOSED"] as const) {
  for (const key of [name, `READY_STATE_${name}`]) Object.defineProperty(WebSocket.prototype, key, { value: WebSocket[name], enumerable: true });
}
handlerAttributes(WebSocket, "open", "message", "close", "error");

function clientURL(text: string): string {
  let u: any;
  try {
    u = new (globalThis as any).URL(text);
  } catch {
    throw new DOMException("WebSocket Constructor: The url is invalid.", "SyntaxError");
  }
  if (u.protocol === "http:") u.protocol = "ws:";
  if (u.protocol === "https:") u.protocol = "wss:";
  if (u.protocol !== "ws:" && u.protocol !== "wss:") throw new DOMException("WebSocket Constructor: The url scheme must be ws, wss, http, or https.", "SyntaxError");
  if (u.href.includes("#")) throw new DOMException("WebSocket Constructor: The url fragment must be empty.", "SyntaxError");
  return u.href;
}

function checkCode(n: number): number {
  if (n === 1000 || (n >= 1001 && n < 5000 && n !== 1004 && n !== 1005 && n !== 1006 && n !== 1015 && Number.isInteger(n))) return n;
  throw new DOMException(`Invalid WebSocket close code: ${n}.`, "InvalidAccessError");
}

function outgoing(m: unknown): string | Uint8Array {
  if (isBufferSource(m)) return copyOf(m);
  if (m instanceof Blob) return blobBytes(m);
  return String(m).toWellFormed();
}

// ---- what arrives; called by the wire

/** Runs f now, or when the socket has been accepted. */
function arrive(ws: WebSocket, f: () => void): void {
  const s = stateOf(ws);
  if (s.accepted) f();
  else s.queue.push(f);
}

/** What a message event carries, by the socket's binaryType. */
export function received(ws: WebSocket, m: string | Uint8Array): string | ArrayBuffer | Blob {
  if (typeof m === "string") return m;
  return stateOf(ws).binaryType === "blob" ? new Blob([m]) : bufferOf(m);
}

export function deliverOpen(ws: WebSocket, protocol = "", extensions = ""): void {
  const s = stateOf(ws);
  s.protocol = protocol;
  s.extensions = extensions;
  if (s.readyState === 0) s.readyState = 1;
  ws.dispatchEvent(new Event("open"));
}

export function deliverMessage(ws: WebSocket, m: string | Uint8Array): void {
  arrive(ws, () => ws.dispatchEvent(new MessageEvent("message", { data: received(ws, m) })));
}

export function deliverClose(ws: WebSocket, code: number, reason: string, wasClean: boolean): void {
  arrive(ws, () => {
    const s = stateOf(ws);
    if (s.closeReceived) return;
    s.closeReceived = true;
    s.readyState = s.closeSent || !wasClean ? 3 : 2;
    ws.dispatchEvent(new CloseEvent("close", { code, reason, wasClean }));
  });
}

export function deliverError(ws: WebSocket, error: unknown): void {
  arrive(ws, () => {
    stateOf(ws).readyState = 3;
    ws.dispatchEvent(new ErrorEvent("error", { error, message: error instanceof Error ? error.message : String(error) }));
  });
}

/** The wire between the two sockets of a pair. */
function wireTo(other: WebSocket): Wire {
  return {
    send: (m) => queueMicrotask(() => deliverMessage(other, m)),
    close: (code, reason) => queueMicrotask(() => deliverClose(other, code ?? 1005, reason, true)),
  };
}

export class WebSocketPair {
  declare 0: WebSocket;
  declare 1: WebSocket;
  constructor() {
    const [a, b] = [newSocket(), newSocket()];
    stateOf(a).wire = wireTo(b);
    stateOf(b).wire = wireTo(a);
    pairs.set(a, b);
    pairs.set(b, a);
    this[0] = a;
    this[1] = b;
  }

  *[Symbol.iterator](): Iterator<WebSocket> {
    yield this[0];
    yield this[1];
  }
}

const pairs = new WeakMap<WebSocket, WebSocket>();

/** The other socket of a pair: when one leaves in a Response, the engine gives the other its wire. */
export function peerOf(ws: WebSocket): WebSocket | undefined {
  return pairs.get(ws);
}

export class WebSocketRequestResponsePair {
  #request: string;
  #response: string;
  constructor(request: unknown, response: unknown) {
    if (arguments.length < 2) throw new TypeError(`Failed to construct 'WebSocketRequestResponsePair': 2 arguments required, but only ${arguments.length} present.`);
    this.#request = String(request);
    this.#response = String(response);
  }
  get request(): string { return this.#request; }
  get response(): string { return this.#response; }
}
