// How console shows values: the format of Node's util.inspect, in the parts that people look at.

const maxDepth = 2;
const maxItems = 100;
const lineWidth = 72;

/** One line of a console call, with the % directives of a first string. */
export function format(args: readonly unknown[]): string {
  if (args.length === 0) return "";
  let next = 0;
  let text = "";
  if (typeof args[0] === "string" && args.length > 1) {
    next = 1;
    text = args[0].replace(/%[sdifoOjc%]/g, (d) => {
      if (d === "%%") return "%";
      if (next >= args.length) return d;
      return directive(d, args[next++]);
    });
  }
  const rest = args.slice(next).map((a) => (typeof a === "string" ? a : inspect(a)));
  return next > 0 ? [text, ...rest].join(" ") : rest.join(" ");
}

function directive(d: string, value: unknown): string {
  switch (d) {
    case "%s": return typeof value === "string" ? value : typeof value === "object" && value !== null ? inspect(value) : show(value);
    case "%d": return typeof value === "object" ? "NaN" : typeof value === "bigint" ? `${value}n` : String(Number(value as never));
    case "%i": return String(parseInt(String(value), 10));
    case "%f": return String(parseFloat(String(value)));
    case "%j": return JSON.stringify(value) ?? "undefined";
    case "%c": return "";
  }
  return inspect(value);
}

const show = (v: unknown) => (typeof v === "bigint" ? `${v}n` : Object.is(v, -0) ? "-0" : String(v));

export function inspect(value: unknown): string {
  const text = describe(value, 0, [], "");
  return text.includes("[Circular *1]") ? "<ref *1> " + text : text;
}

function describe(v: unknown, depth: number, above: object[], indent: string): string {
  if (typeof v === "string") return quoted(v);
  if ((typeof v !== "object" && typeof v !== "function") || v === null) return show(v);
  if (above.includes(v)) return "[Circular *1]";
  const custom = (v as any)[Symbol.for("nodejs.util.inspect.custom")];
  if (typeof custom === "function") {
    const shown = custom.call(v, maxDepth - depth, {}, inspect);
    if (shown !== v) return typeof shown === "string" ? shown : describe(shown, depth, above, indent);
  }
  try {
    return composite(v, depth, [...above, v], indent);
  } catch {
    return "[object]"; // a proxy or getter that throws must not break a log line
  }
}

function quoted(s: string): string {
  const q = !s.includes("'") ? "'" : !s.includes('"') ? '"' : !s.includes("`") ? "`" : "'";
  const body = s.replace(/[\x00-\x1f\\]/g, (c) => (c === "\n" ? "\\n" : c === "\t" ? "\\t" : c === "\r" ? "\\r" : c === "\\" ? "\\\\" : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()));
  return q + (q === "'" ? body.replaceAll("'", "\\'") : body) + q;
}

function nameOf(v: object): string | null {
  for (let p: object | null = v; p !== null; p = Object.getPrototypeOf(p)) {
    const c = Object.getOwnPropertyDescriptor(p, "constructor")?.value;
    if (typeof c === "function" && c.name !== "") return c.name;
  }
  return null;
}

function composite(v: object, depth: number, above: object[], indent: string): string {
  const name = nameOf(v);
  const nested = depth > maxDepth;
  const child = (x: unknown) => describe(x, depth + 1, above, indent + "  ");
  if (v instanceof Error) return errorText(v, child, indent);
  if (v instanceof Date) return Number.isNaN(+v) ? "Invalid Date" : v.toISOString();
  if (v instanceof RegExp) return String(v);
  if (v instanceof Promise) return "Promise { <state unknown> }";
  if (v instanceof WeakMap || v instanceof WeakSet) return `${name} { <items unknown> }`;
  if (v instanceof Number || v instanceof String || v instanceof Boolean) return `[${name}: ${child(v.valueOf())}]`;
  const fields = () => ownFields(v, child);
  if (typeof v === "function") {
    const cls = /^class\b/.test(Function.prototype.toString.call(v));
    const base = cls ? `[class ${v.name || "(anonymous)"}]` : `[${name ?? "Function"}${v.name ? ": " + v.name : " (anonymous)"}]`;
    const own = fields();
    return own.length ? base + " " + join("{", own, "}", indent) : base;
  }
  if (Array.isArray(v)) {
    if (nested) return "[Array]";
    const prefix = name === "Array" ? "" : `${name}(${v.length}) `;
    return prefix + join("[", [...items(v, v.length, child), ...ownFields(v, child, true)], "]", indent);
  }
  if (ArrayBuffer.isView(v) && !(v instanceof DataView)) {
    const list = v as unknown as ArrayLike<unknown>;
    return `${name}(${list.length}) ` + join("[", items(list, list.length, child), "]", indent);
  }
  if (v instanceof ArrayBuffer) {
    const hex = Array.from(new Uint8Array(v, 0, Math.min(50, v.byteLength)), (b) => b.toString(16).padStart(2, "0")).join(" ");
    return `ArrayBuffer { [Uint8Contents]: <${hex}${v.byteLength > 50 ? " ... " : ""}>, byteLength: ${v.byteLength} }`;
  }
  if (nested) return `[${name ?? "Object: null prototype"}]`;
  if (v instanceof Map) return `Map(${v.size}) ` + join("{", items([...v], v.size, (e) => child((e as unknown[])[0]) + " => " + child((e as unknown[])[1])), "}", indent);
  if (v instanceof Set) return `Set(${v.size}) ` + join("{", items([...v], v.size, child), "}", indent);
  const prefix = name === "Object" ? "" : name === null ? "[Object: null prototype] " : name + " ";
  const list = [...fields(), ...accessors(v, child)];
  return prefix + join("{", list, "}", indent);
}

function items(list: ArrayLike<unknown>, n: number, child: (x: unknown) => string): string[] {
  const out: string[] = [];
  for (let i = 0; i < Math.min(n, maxItems); i++) {
    if (!(i in list)) {
      const start = i;
      while (i + 1 < n && !(i + 1 in list)) i++;
      out.push(`<${i - start + 1} empty item${i > start ? "s" : ""}>`);
    } else out.push(child(list[i]));
  }
  if (n > maxItems) out.push(`... ${n - maxItems} more item${n > maxItems + 1 ? "s" : ""}`);
  return out;
}

const plainKey = /^[A-Za-z_$][\w$]*$/;
const keyText = (k: string | symbol) => (typeof k === "symbol" ? `[${String(k)}]` : plainKey.test(k) ? k : quoted(k));

function ownFields(v: object, child: (x: unknown) => string, skipIndexes = false): string[] {
  const out: string[] = [];
  for (const k of Reflect.ownKeys(v)) {
    const d = Object.getOwnPropertyDescriptor(v, k);
    if (!d?.enumerable || (skipIndexes && typeof k === "string" && /^\d+$/.test(k))) continue;
    const shown = "value" in d ? child(d.value) : d.get && d.set ? "[Getter/Setter]" : d.get ? "[Getter]" : "[Setter]";
    out.push(`${keyText(k)}: ${shown}`);
  }
  return out;
}

/** Classes of the platform show what their getters give. */
const shownGetters: Record<string, string[]> = {
  Request: ["method", "url", "headers", "redirect", "bodyUsed"],
  Response: ["status", "statusText", "headers", "ok", "redirected", "url", "bodyUsed"],
  URL: ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "searchParams", "hash"],
  Blob: ["size", "type"],
  File: ["size", "type", "name", "lastModified"],
  AbortSignal: ["aborted", "reason"],
};

function accessors(v: object, child: (x: unknown) => string): string[] {
  const tag = (v as any)[Symbol.toStringTag];
  if (tag === "Headers" || tag === "URLSearchParams" || tag === "FormData") return Array.from(v as Iterable<[string, unknown]>, ([k, x]) => `${keyText(k)}: ${child(x)}`);
  const getters = typeof tag === "string" ? shownGetters[tag] : undefined;
  return getters?.map((g) => `${g}: ${child((v as any)[g])}`) ?? [];
}

function errorText(e: Error, child: (x: unknown) => string, indent: string): string {
  let text = typeof e.stack === "string" && e.stack !== "" ? e.stack : `[${e.name}: ${e.message}]`;
  if (indent !== "") text = text.replaceAll("\n", "\n" + indent);
  const hidden = new Set<string | symbol>(["stack", "message", "name", "code"]);
  const own = ownFields(Object.fromEntries(Reflect.ownKeys(e).filter((k) => !hidden.has(k) || (k === "code" && !("INDEX_SIZE_ERR" in e))).flatMap((k) => {
    const d = Object.getOwnPropertyDescriptor(e, k)!;
    return d.enumerable && "value" in d ? [[k, d.value]] : [];
  })), child);
  if ("cause" in e) own.push(`[cause]: ${child(e.cause)}`);
  if (e instanceof AggregateError) own.push(`[errors]: ${child(e.errors)}`);
  return own.length ? `${text} ${join("{", own, "}", indent)}` : text;
}

function join(open: string, parts: string[], close: string, indent: string): string {
  if (parts.length === 0) return open + close;
  const line = parts.join(", ");
  const brackets = open === "[" ? [open + " ", " " + close] : [open + " ", " " + close];
  if (line.length + indent.length <= lineWidth && !line.includes("\n")) return brackets[0] + line + brackets[1];
  return `${open}\n${parts.map((p) => indent + "  " + p).join(",\n")}\n${indent}${close}`;
}
