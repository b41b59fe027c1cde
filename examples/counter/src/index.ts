import { DurableObject } from "cloudflare:workers";

interface Env {
  COUNTER: DurableObjectNamespace<Counter>;
}

/** One cell: a number in a SQLite table of its own. */
export class Counter extends DurableObject<Env> {
  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 1), n INTEGER NOT NULL)");
  }

  async fetch(request: Request): Promise<Response> {
    const sql = this.ctx.storage.sql;
    if (request.method === "HEAD" || new URL(request.url).pathname === "/value") {
      const row = sql.exec<{ n: number }>("SELECT n FROM counter").toArray()[0];
      return new Response(String(row?.n ?? 0));
    }
    const { n } = sql
      .exec<{ n: number }>("INSERT INTO counter VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1 RETURNING n")
      .one();
    return new Response(String(n));
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const name = new URL(request.url).searchParams.get("name") ?? "main";
    return env.COUNTER.get(env.COUNTER.idFromName(name)).fetch(request);
  },
};
