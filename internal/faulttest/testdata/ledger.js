// One cell is a ledger: ids, the place of each, and how often it was written.
import { DurableObject } from "cloudflare:workers";

export class Ledger extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS ids (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, n INTEGER NOT NULL)");
  }
  async fetch(request) {
    const url = new URL(request.url);
    const sql = this.ctx.storage.sql;
    if (url.pathname === "/spin") for (;;);
    if (url.pathname === "/hog") for (const all = []; ; ) all.push(new Array(10000).fill(url.href + all.length));
    if (url.pathname === "/throw") throw new RangeError("thrown by the cell");
    if (url.pathname === "/echo") return new Response(request.body);
    if (url.pathname === "/fill") sql.exec("INSERT INTO ids (id, n) VALUES (?, 1)", crypto.randomUUID() + "x".repeat(1 << 20));
    if (url.pathname === "/big") sql.exec("INSERT INTO ids (id, n) VALUES (?, 1)", "x".repeat(3 << 20));
    if (url.pathname === "/body") return new Response(String((await request.arrayBuffer()).byteLength));
    if (url.pathname === "/add") {
      const id = url.searchParams.get("id");
      const { seq } = sql.exec("INSERT INTO ids (id, n) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1 RETURNING seq", id).one();
      return new Response(`ok ${seq}`);
    }
    return Response.json(Object.fromEntries(sql.exec("SELECT id, n, seq FROM ids").toArray().map((r) => [r.id, r])));
  }
}

export default {
  fetch(request, env) {
    const name = new URL(request.url).searchParams.get("cell");
    if (name === null) return new Response("up");
    return env.LEDGER.get(env.LEDGER.idFromName(name)).fetch(request);
  },
};
