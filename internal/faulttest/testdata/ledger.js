// One cell is a ledger: ids, and how often each was written.
import { DurableObject } from "cloudflare:workers";

export class Ledger extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, n INTEGER NOT NULL)");
  }
  async fetch(request) {
    const url = new URL(request.url);
    const sql = this.ctx.storage.sql;
    if (url.pathname === "/spin") for (;;);
    if (url.pathname === "/big") sql.exec("INSERT INTO ids VALUES (?, 1)", "x".repeat(3 << 20));
    if (url.pathname === "/body") return new Response(String((await request.arrayBuffer()).byteLength));
    if (url.pathname === "/add") {
      sql.exec("INSERT INTO ids VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1", url.searchParams.get("id"));
      return new Response("ok");
    }
    return Response.json(Object.fromEntries(sql.exec("SELECT id, n FROM ids").raw().toArray()));
  }
}

export default {
  fetch(request, env) {
    const name = new URL(request.url).searchParams.get("cell");
    if (name === null) return new Response("up");
    return env.LEDGER.get(env.LEDGER.idFromName(name)).fetch(request);
  },
};
