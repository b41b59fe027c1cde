// MessageChannel and MessagePort, within one isolate.
import { deserialize } from "../host";
import { toWire } from "./clone";
import { DOMException } from "./exception";
import { EventTarget, MessageEvent, handlerAttributes } from "./events";
import { queueMicrotask } from "./performance";

const token = Symbol("internal");

export class MessagePort extends EventTarget {
  #other: MessagePort | undefined;
  #queue: ArrayBuffer[] | undefined = []; // until start()
  declare onmessage: unknown;

  constructor(secret?: unknown) {
    if (secret !== token) throw new TypeError("Illegal constructor");
    super();
  }

  static entangle(): [MessagePort, MessagePort] {
    const [a, b] = [new MessagePort(token), new MessagePort(token)];
    a.#other = b;
    b.#other = a;
    return [a, b];
  }

  postMessage(value: unknown, transfer?: unknown): void {
    const list = Array.isArray(transfer) ? transfer : ((transfer as { transfer?: unknown[] } | undefined)?.transfer ?? []);
    if (list.length > 0) throw new DOMException("Transfer is not supported by MessagePort.postMessage().", "DataCloneError");
    const wire = toWire(value);
    const to = this.#other;
    if (!to) return;
    if (to.#queue) to.#queue.push(wire);
    else to.#deliver(wire);
  }

  #deliver(wire: ArrayBuffer): void {
    queueMicrotask(() => {
      if (this.#other) this.dispatchEvent(new MessageEvent("message", { data: deserialize(wire) }));
    });
  }

  start(): void {
    const queue = this.#queue;
    this.#queue = undefined;
    for (const wire of queue ?? []) this.#deliver(wire);
  }

  close(): void {
    const other = this.#other;
    this.#other = undefined;
    if (other) other.#other = undefined;
  }
}

handlerAttributes(MessagePort, "message", "messageerror");

// Setting onmessage starts a port; addEventListener does not.
const inherited = Object.getOwnPropertyDescriptor(MessagePort.prototype, "onmessage")!;
Object.defineProperty(MessagePort.prototype, "onmessage", {
  ...inherited,
  set(this: MessagePort, f: unknown) {
    inherited.set!.call(this, f);
    this.start();
  },
});


const entangle = MessagePort.entangle;
delete (MessagePort as { entangle?: unknown }).entangle;

export class MessageChannel {
  #ports = entangle();
  get port1(): MessagePort { return this.#ports[0]; }
  get port2(): MessagePort { return this.#ports[1]; }
}
