// Parts of the platform that celld does not have yet: each says so when it is first used.
import { unsupported } from "./exception";

export class HTMLRewriter {
  constructor() { throw unsupported("HTMLRewriter"); }
}

const reason = () => unsupported("The Cache API", "Keep responses in a Durable Object or in KV.");

export class Cache {
  async match(): Promise<never> { throw reason(); }
  async put(): Promise<never> { throw reason(); }
  async delete(): Promise<never> { throw reason(); }
}

export class CacheStorage {
  #default = new Cache();
  get default(): Cache { return this.#default; }
  async open(): Promise<never> { throw reason(); }
}
