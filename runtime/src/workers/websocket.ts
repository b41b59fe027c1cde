// WebSockets between JavaScript and the host. Two kinds of sockets have their other end outside: the peer of one that
// left with a Response, and one that came with the Response of a fetch. Each has a number at the host; what it sends is
// an output, what arrives is an event.

import { deserialize, serialize, sync } from "../host";
import { type Actor, current } from "./actor";
import {
  type WebSocket, type WebSocketRequestResponsePair, deliverClose, deliverError, deliverMessage, newSocket, peerOf, received, stateOf,
} from "../web/websocket";
import { WebSocket as WebSocketClass } from "../web/websocket";
import { reportError } from "../web/events";

const open = sync<number>("socket.open");
const accept = sync("socket.accept");
const sendText = sync("socket.text");
const sendBinary = sync("socket.binary");
const sendClose = sync("socket.close");
const drop = sync("socket.drop");

const maxTags = 10;
const maxTag = 256;
const maxAttachment = 16384;

/** What the host knows a socket by, for those whose other end is outside. */
const numbers = new WeakMap<WebSocket, number>();

/** A socket that came with a response; nothing flows before it is accepted, so that it can be passed on whole. */
export function socketFromHost(id: number): WebSocket {
  const ws = newSocket();
  attach(ws, id, true);
  return ws;
}

/** The host's number for the socket of a Response on its way out. */
export function socketForHost(ws: WebSocket): number {
  const known = numbers.get(ws);
  if (known !== undefined) {
    if (stateOf(ws).accepted) throw new TypeError("Can't return WebSocket in a Response after calling accept().");
    forget(ws, known);
    return -known; // one of the host's own: it is passed on as it is
  }
  const near = peerOf(ws);
  if (near === undefined) throw new TypeError("The WebSocket of a Response must be one end of a WebSocketPair.");
  if (stateOf(ws).accepted) throw new TypeError("Can't return WebSocket in a Response after calling accept().");
  const id = open();
  attach(near, id, false);
  return id;
}

function attach(ws: WebSocket, id: number, lazy: boolean): void {
  const actor = current()!;
  numbers.set(ws, id);
  stateOf(ws).wire = {
    send: (m) => (typeof m === "string" ? sendText(id, m) : sendBinary(id, m)),
    close: (code, reason) => {
      sendClose(id, reason, code ?? 1005);
      if (stateOf(ws).closeReceived) forget(ws, id);
    },
    accepted: lazy ? () => accept(id) : undefined,
  };
  actor.sockets.set(id, {
    frame: (data) => arrived(actor, ws, data),
    closed: (code, reason, clean) => {
      forget(ws, id, actor);
      ended(actor, ws, code, reason, clean);
    },
  });
}

function forget(ws: WebSocket, id: number, actor = current()): void {
  actor?.sockets.delete(id);
  numbers.delete(ws);
  drop(id);
}

// ---- sockets that a Durable Object accepted for hibernation

interface Accepted {
  tags: string[];
  answered: Date | null; // when the automatic response went out last
}

/** The hibernatable sockets of one object. */
export class Sockets {
  readonly #accepted = new Map<WebSocket, Accepted>();
  auto: WebSocketRequestResponsePair | null = null;

  accept(ws: WebSocket, tags: unknown[] = []): void {
    const list = [...new Set(tags.map(String))];
    if (list.length > maxTags) throw new Error("a Hibernatable WebSocket cannot have more than 10 tags");
    for (const t of list) {
      if (t.length > maxTag) throw new Error(`"${t}" is longer than the max tag length (${maxTag} characters).`);
    }
    const s = stateOf(ws);
    if (s.accepted) throw new TypeError("Cannot call `acceptWebSocket()` if the WebSocket was already accepted.");
    s.hibernatable = true;
    s.accepted = true;
    s.wire?.accepted?.();
    this.#accepted.set(ws, { tags: list, answered: null });
    owners.set(ws, this);
  }

  list(tag?: string): WebSocket[] {
    const out: WebSocket[] = [];
    for (const [ws, a] of this.#accepted) if (tag === undefined || a.tags.includes(tag)) out.push(ws);
    return out;
  }

  tags(ws: WebSocket): string[] {
    const a = this.#accepted.get(ws);
    if (a === undefined) throw new TypeError("This WebSocket was not accepted by this object for hibernation.");
    return [...a.tags];
  }

  answered(ws: WebSocket): Date | null {
    return this.#accepted.get(ws)?.answered ?? null;
  }

  /** Answers without the object where an automatic response fits. */
  respond(ws: WebSocket, data: string | ArrayBuffer): boolean {
    const a = this.#accepted.get(ws);
    if (a === undefined || this.auto === null || data !== this.auto.request) return false;
    a.answered = new Date();
    stateOf(ws).wire?.send(this.auto.response);
    return true;
  }

  remove(ws: WebSocket): void {
    this.#accepted.delete(ws);
  }
}

const owners = new WeakMap<WebSocket, Sockets>();

function arrived(actor: Actor, ws: WebSocket, data: string | ArrayBuffer): void {
  const message = typeof data === "string" ? data : new Uint8Array(data);
  if (!stateOf(ws).hibernatable) return deliverMessage(ws, message);
  if (owners.get(ws)?.respond(ws, data)) return;
  call(actor, "webSocketMessage", ws, typeof data === "string" ? data : received(ws, message as Uint8Array));
}

function ended(actor: Actor, ws: WebSocket, code: number, reason: string, clean: boolean): void {
  const s = stateOf(ws);
  if (!s.hibernatable) {
    if (!clean) deliverError(ws, new Error(reason));
    return deliverClose(ws, code, clean ? reason : "", clean);
  }
  if (s.closeReceived) return;
  s.closeReceived = true;
  s.readyState = s.closeSent || !clean ? 3 : 2;
  const done = call(actor, "webSocketClose", ws, code, clean ? reason : "", clean);
  const sockets = owners.get(ws);
  if (sockets) Promise.resolve(done).finally(() => sockets.remove(ws));
}

/** Calls a handler of the object; what it throws is reported, since nobody waits for it. */
function call(actor: Actor, name: string, ...args: unknown[]): unknown {
  const handler = actor.instance?.[name];
  if (typeof handler !== "function") return undefined;
  try {
    return Promise.resolve(handler.apply(actor.instance, args)).catch(reportError);
  } catch (error) {
    reportError(error);
    return undefined;
  }
}

// ---- attachments: part of the class, known here because only hibernation needs them

const attachments = new WeakMap<WebSocket, ArrayBuffer>();

Object.assign(WebSocketClass.prototype, {
  serializeAttachment(this: WebSocket, value: unknown): void {
    const bytes = serialize(value);
    if (bytes.byteLength > maxAttachment) {
      throw new Error(`A WebSocket 'attachment' cannot be larger than ${maxAttachment} bytes.'attachment' was ${bytes.byteLength} bytes.`);
    }
    attachments.set(this, bytes);
  },
  deserializeAttachment(this: WebSocket): unknown {
    const bytes = attachments.get(this);
    return bytes === undefined ? null : deserialize(bytes);
  },
});
