import { DurableObject, RpcTarget } from "cloudflare:workers";

interface Env {
  ACCOUNT: DurableObjectNamespace<Account>;
}

/** A purse that was taken out of an account: an object that stays in the cell, called from the Worker. */
class Purse extends RpcTarget {
  #account: Account;
  #left: number;

  constructor(account: Account, amount: number) {
    super();
    this.#account = account;
    this.#left = amount;
  }

  spend(amount: number): number {
    if (amount > this.#left) throw new RangeError(`only ${this.#left} left`);
    this.#left -= amount;
    return this.#left;
  }

  giveBack(): number {
    const left = this.#left;
    this.#left = 0;
    return this.#account.deposit(left);
  }
}

export class Account extends DurableObject<Env> {
  balance(): number {
    return this.ctx.storage.kv.get<number>("balance") ?? 0;
  }

  deposit(amount: number): number {
    const next = this.balance() + amount;
    this.ctx.storage.kv.put("balance", next);
    return next;
  }

  takeOut(amount: number): Purse {
    if (amount > this.balance()) throw new RangeError(`the balance is ${this.balance()}`);
    this.deposit(-amount);
    return new Purse(this, amount);
  }

  /** Calls back: the function lives in the Worker. */
  async describe(format: (balance: number) => Promise<string> | string): Promise<string> {
    return `balance: ${await format(this.balance())}`;
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const url = new URL(request.url);
    const [, name, verb, amount] = url.pathname.split("/");
    const account = env.ACCOUNT.get(env.ACCOUNT.idFromName(name));
    try {
      switch (verb) {
        case "balance":
          return new Response(String(await account.balance()));
        case "deposit":
          return new Response(String(await account.deposit(Number(amount))));
        case "shop": {
          // One purse, several calls on it; it is given back in any case.
          using purse = await account.takeOut(Number(amount));
          const left = await purse.spend(1);
          return Response.json({ left, balance: await purse.giveBack() });
        }
        case "pipeline":
          // No await in between: both calls travel together.
          return new Response(String(await account.takeOut(Number(amount)).giveBack()));
        case "describe":
          return new Response(await account.describe((n) => `${n} coins`));
      }
    } catch (e) {
      return new Response(`${(e as Error).name}: ${(e as Error).message}`, { status: 400 });
    }
    return new Response("/NAME/{balance,deposit/N,shop/N,pipeline/N,describe}\n", { status: 404 });
  },
};
