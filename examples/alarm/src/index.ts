import { DurableObject } from "cloudflare:workers";

interface Env {
  REMINDER: DurableObjectNamespace<Reminder>;
}

/** POST /?in=MS arms an alarm; GET / tells how many fired and whether one is armed. */
export class Reminder extends DurableObject<Env> {
  async fetch(request: Request): Promise<Response> {
    const storage = this.ctx.storage;
    if (request.method === "POST") {
      const delay = Number(new URL(request.url).searchParams.get("in") ?? "1000");
      await storage.setAlarm(Date.now() + delay);
    } else if (request.method === "DELETE") {
      await storage.deleteAlarm();
    }
    const fired = (await storage.get<number>("fired")) ?? 0;
    return Response.json({ fired, armed: (await storage.getAlarm()) !== null });
  }

  async alarm(): Promise<void> {
    await this.ctx.storage.put("fired", ((await this.ctx.storage.get<number>("fired")) ?? 0) + 1);
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const name = new URL(request.url).searchParams.get("name") ?? "main";
    return env.REMINDER.get(env.REMINDER.idFromName(name)).fetch(request);
  },
};
