// The Worker that both engines run: /hello, /get, /inc, and /cell/NAME/inc for many cells.
import { DurableObject } from "cloudflare:workers";

export class Cell extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS c (id INTEGER PRIMARY KEY, n INTEGER)");
    ctx.storage.sql.exec("INSERT OR IGNORE INTO c VALUES (1, 0)");
  }
  async fetch(request) {
    const sql = this.ctx.storage.sql;
    const row = request.url.endsWith("/inc")
      ? sql.exec("UPDATE c SET n = n + 1 WHERE id = 1 RETURNING n").one()
      : sql.exec("SELECT n FROM c WHERE id = 1").one();
    return new Response(String(row.n));
  }
}

export default {
  async fetch(request, env) {
    const path = new URL(request.url).pathname;
    if (path === "/hello") return new Response("hello");
    const [, kind, name] = path.split("/");
    return env.CELL.get(env.CELL.idFromName(kind === "cell" ? name : "one")).fetch(request);
  },
};
