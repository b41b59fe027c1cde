// console. Lines are formatted here and go to the host, which knows whose they are.
import { format, inspect } from "./inspect";
import { op } from "./ops";

const log = op<void>("console.log");

type Level = "debug" | "info" | "log" | "warn" | "error";

export class Console {
  #counts = new Map<string, number>();
  #timers = new Map<string, number>();
  #indent = "";

  constructor() {
    // Methods work without their object: `const { log } = console`.
    for (const name of Object.getOwnPropertyNames(Console.prototype)) {
      const f = (this as any)[name];
      if (name !== "constructor") Object.defineProperty(this, name, { value: f.bind(this), writable: true, configurable: true, enumerable: true });
    }
  }

  #print(level: Level, args: unknown[]): void {
    const text = format(args);
    log(level, this.#indent === "" ? text : text.replace(/^/gm, this.#indent));
  }

  debug(...args: unknown[]): void { this.#print("debug", args); }
  info(...args: unknown[]): void { this.#print("info", args); }
  log(...args: unknown[]): void { this.#print("log", args); }
  warn(...args: unknown[]): void { this.#print("warn", args); }
  error(...args: unknown[]): void { this.#print("error", args); }
  dir(value: unknown): void { log("log", inspect(value)); }
  dirxml(...args: unknown[]): void { this.#print("log", args); }
  table(data: unknown): void { this.#print("log", [data]); }

  trace(...args: unknown[]): void {
    const stack = new Error().stack?.split("\n").slice(2).join("\n") ?? "";
    this.#print("debug", ["Trace" + (args.length ? ": " + format(args) : "") + "\n" + stack]);
  }

  assert(condition: unknown, ...args: unknown[]): void {
    if (!condition) this.#print("error", args.length ? ["Assertion failed:", ...args] : ["Assertion failed"]);
  }

  count(label = "default"): void {
    const n = (this.#counts.get(String(label)) ?? 0) + 1;
    this.#counts.set(String(label), n);
    this.#print("info", [`${label}: ${n}`]);
  }

  countReset(label = "default"): void { this.#counts.delete(String(label)); }
  group(...args: unknown[]): void {
    if (args.length) this.#print("log", args);
    this.#indent += "  ";
  }
  groupCollapsed(...args: unknown[]): void { this.group(...args); }
  groupEnd(): void { this.#indent = this.#indent.slice(2); }
  time(label = "default"): void { this.#timers.set(String(label), Date.now()); }
  timeLog(label = "default", ...args: unknown[]): void {
    const start = this.#timers.get(String(label));
    if (start === undefined) this.#print("warn", [`Timer '${label}' does not exist`]);
    else this.#print("info", [`${label}: ${Date.now() - start}ms`, ...args]);
  }
  timeEnd(label = "default"): void {
    this.timeLog(label);
    this.#timers.delete(String(label));
  }
  clear(): void {}
  timeStamp(): void {}
  profile(): void {}
  profileEnd(): void {}
}
