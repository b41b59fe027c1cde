import { DurableObject } from "cloudflare:workers";
import { Hono } from "hono";

interface Env {
  TODOS: DurableObjectNamespace<Todos>;
}

interface Todo {
  id: number;
  title: string;
  done: boolean;
}

type Row = { id: number; title: string; done: number };

/** One list of todos; the Worker reaches it by RPC. */
export class Todos extends DurableObject<Env> {
  #sql = this.ctx.storage.sql;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#sql.exec("CREATE TABLE IF NOT EXISTS todos (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0)");
  }

  list(): Todo[] {
    return this.#sql.exec<Row>("SELECT * FROM todos ORDER BY id").toArray().map(fromRow);
  }

  add(title: string): Todo {
    return fromRow(this.#sql.exec<Row>("INSERT INTO todos (title) VALUES (?) RETURNING *", title).one());
  }

  get(id: number): Todo | null {
    const row = this.#sql.exec<Row>("SELECT * FROM todos WHERE id = ?", id).toArray()[0];
    return row ? fromRow(row) : null;
  }

  update(id: number, change: Partial<Todo>): Todo | null {
    const now = this.get(id);
    if (!now) return null;
    const next = { ...now, ...change, id };
    this.#sql.exec("UPDATE todos SET title = ?, done = ? WHERE id = ?", next.title, next.done ? 1 : 0, id);
    return next;
  }

  remove(id: number): boolean {
    return this.#sql.exec("DELETE FROM todos WHERE id = ? RETURNING id", id).toArray().length > 0;
  }
}

function fromRow(row: Row): Todo {
  return { id: row.id, title: row.title, done: row.done !== 0 };
}

const app = new Hono<{ Bindings: Env; Variables: { todos: DurableObjectStub<Todos> } }>();

app.use("/:list/*", async (c, next) => {
  const ns = c.env.TODOS;
  c.set("todos", ns.get(ns.idFromName(c.req.param("list"))));
  await next();
});

app.get("/:list/todos", async (c) => c.json(await c.get("todos").list()));

app.post("/:list/todos", async (c) => {
  const { title } = await c.req.json<{ title?: unknown }>();
  if (typeof title !== "string" || title === "") return c.json({ error: "title must be a text" }, 400);
  return c.json(await c.get("todos").add(title), 201);
});

app.get("/:list/todos/:id{[0-9]+}", async (c) => {
  const todo = await c.get("todos").get(Number(c.req.param("id")));
  return todo ? c.json(todo) : c.json({ error: "no such todo" }, 404);
});

app.patch("/:list/todos/:id{[0-9]+}", async (c) => {
  const { title, done } = await c.req.json<Partial<Todo>>();
  const change = { ...(typeof title === "string" && { title }), ...(typeof done === "boolean" && { done }) };
  const todo = await c.get("todos").update(Number(c.req.param("id")), change);
  return todo ? c.json(todo) : c.json({ error: "no such todo" }, 404);
});

app.delete("/:list/todos/:id{[0-9]+}", async (c) => {
  const gone = await c.get("todos").remove(Number(c.req.param("id")));
  return gone ? c.body(null, 204) : c.json({ error: "no such todo" }, 404);
});

export default app;
