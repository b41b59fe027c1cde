// Puts the web platform on the global object. Loading this file calls nothing of the host.
import { AbortController, AbortSignal } from "./abort";
import { Blob, File } from "./blob";
import { clonedBy, neverCloned, structuredClone } from "./clone";
import { Console } from "./console";
import { Crypto, CryptoKey, DigestStream, SubtleCrypto, crypto } from "./crypto";
import { TextDecoder, TextEncoder, atob, btoa } from "./encoding";
import { CloseEvent, CustomEvent, ErrorEvent, Event, EventTarget, MessageEvent, PromiseRejectionEvent, reportError } from "./events";
import { EventSource } from "./eventsource";
import { DOMException } from "./exception";
import { FormData } from "./formdata";
import { Headers } from "./headers";
import { Request, Response, fetch } from "./http";
import { MessageChannel, MessagePort } from "./message";
import { Cache, CacheStorage, HTMLRewriter } from "./missing";
import { URLPattern } from "./pattern";
import { Navigator, Performance, PerformanceEntry, PerformanceMark, PerformanceMeasure, Scheduler, queueMicrotask } from "./performance";
import * as streams from "./streams";
import { CompressionStream, DecompressionStream, TextDecoderStream, TextEncoderStream } from "./textstreams";
import { URL } from "./url";
import { URLSearchParams } from "./urlparams";
import { WebSocket, WebSocketPair, WebSocketRequestResponsePair } from "./websocket";

const classes: Record<string, Function> = {
  AbortController, AbortSignal, Blob, Cache, CacheStorage, CloseEvent, CompressionStream, Crypto, CryptoKey, CustomEvent, DOMException, DecompressionStream, DigestStream,
  ErrorEvent, Event, EventSource, EventTarget, File, FormData, HTMLRewriter, Headers, MessageChannel, MessageEvent, MessagePort, Navigator, Performance,
  PerformanceEntry, PerformanceMark, PerformanceMeasure, PromiseRejectionEvent, Request, Response, Scheduler, SubtleCrypto, TextDecoder,
  TextDecoderStream, TextEncoder, TextEncoderStream, URL, URLPattern, URLSearchParams, WebSocket, WebSocketPair, WebSocketRequestResponsePair,
  ByteLengthQueuingStrategy: streams.ByteLengthQueuingStrategy, CountQueuingStrategy: streams.CountQueuingStrategy,
  FixedLengthStream: streams.FixedLengthStream, IdentityTransformStream: streams.IdentityTransformStream,
  ReadableByteStreamController: streams.ReadableByteStreamController, ReadableStream: streams.ReadableStream,
  ReadableStreamBYOBReader: streams.ReadableStreamBYOBReader, ReadableStreamBYOBRequest: streams.ReadableStreamBYOBRequest,
  ReadableStreamDefaultController: streams.ReadableStreamDefaultController, ReadableStreamDefaultReader: streams.ReadableStreamDefaultReader,
  TransformStream: streams.TransformStream, TransformStreamDefaultController: streams.TransformStreamDefaultController,
  WritableStream: streams.WritableStream, WritableStreamDefaultController: streams.WritableStreamDefaultController,
  WritableStreamDefaultWriter: streams.WritableStreamDefaultWriter,
};

/** Classes that are reached through objects only, as in workerd. */
const unlisted = new Set(["DigestStream", "Scheduler"]);

const functions: Record<string, Function> = { atob, btoa, fetch, queueMicrotask, reportError, structuredClone };

/** Symbols that this V8 knows only behind a flag; libraries and compiled `using` look for them. */
function wellKnown(): void {
  for (const name of ["dispose", "asyncDispose"]) {
    if (!(name in Symbol)) Object.defineProperty(Symbol, name, { value: Symbol(`Symbol.${name}`) });
  }
}

/** Installs everything as workerd does: writable, configurable, not enumerable. */
export function install(global: object): void {
  const put = (name: string, value: unknown) => Object.defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });
  for (const [name, c] of Object.entries(classes)) {
    Object.defineProperty(c, "name", { value: name, configurable: true });
    // A tag of their own, or those that inherit would carry their parent's.
    Object.defineProperty(c.prototype, Symbol.toStringTag, { value: name, configurable: true });
    if (!unlisted.has(name)) put(name, c);
  }
  for (const [name, f] of Object.entries(functions)) {
    Object.defineProperty(f, "name", { value: name, configurable: true });
    put(name, f);
  }
  put("caches", new CacheStorage());
  put("console", new Console());
  put("crypto", crypto);
  put("navigator", new Navigator());
  put("performance", new Performance());
  put("scheduler", new Scheduler());
  put("self", global);
  put("origin", "null");
  wellKnown();
  streams.adaptStreams();
  clonedBy(Headers, (h) => new Headers(h));
  clonedBy(Blob, (b) => b.slice(0, b.size, b.type));
  clonedBy(File, (f) => new File([f], f.name, f));
  neverCloned(...Object.entries(classes).filter(([name]) => name !== "DOMException").map(([, c]) => c as { prototype: object }));
}
