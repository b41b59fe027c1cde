import { DurableObject } from "cloudflare:workers";

interface Env {
  STORE: DurableObjectNamespace<Store>;
}

/** A store of texts under keys: PUT, GET and DELETE /KEY, GET / lists. */
export class Store extends DurableObject<Env> {
  async fetch(request: Request): Promise<Response> {
    const url = new URL(request.url);
    const key = decodeURIComponent(url.pathname.slice(1));
    const storage = this.ctx.storage;
    if (key === "") {
      const all = await storage.list<string>({ prefix: url.searchParams.get("prefix") ?? "" });
      return Response.json(Object.fromEntries(all));
    }
    switch (request.method) {
      case "GET": {
        const value = await storage.get<string>(key);
        return value === undefined ? new Response("not found\n", { status: 404 }) : new Response(value);
      }
      case "PUT":
        await storage.put(key, await request.text());
        return new Response(null, { status: 204 });
      case "DELETE":
        return new Response(String(await storage.delete(key)));
    }
    return new Response("method not allowed\n", { status: 405, headers: { Allow: "GET, PUT, DELETE" } });
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const store = new URL(request.url).searchParams.get("store") ?? "main";
    return env.STORE.get(env.STORE.idFromName(store)).fetch(request);
  },
};
