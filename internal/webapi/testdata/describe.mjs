const typedArrays = new Set(["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
  "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"]);

const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");

export function describe(value, depth = 0) {
  if (depth > 12) return "…";
  const next = (v) => describe(v, depth + 1);
  switch (typeof value) {
    case "undefined": return { $: "undefined" };
    case "bigint": return { $: "bigint", value: String(value) };
    case "symbol": return { $: "symbol", value: String(value) };
    case "function": return { $: "function" };
    case "number": return Object.is(value, -0) ? { $: "-0" } : Number.isFinite(value) ? value : { $: String(value) };
    case "string": case "boolean": return value;
  }
  if (value === null) return null;
  if (Array.isArray(value)) return Array.from(value, next);
  if (value instanceof Error) return describeError(value, next);
  const name = value.constructor?.name ?? "null prototype";
  if (value instanceof ArrayBuffer) return { $: name, hex: hex(value) };
  if (typedArrays.has(name)) return { $: name, hex: hex(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength)) };
  if (value instanceof Map) return { $: name, entries: [...value].map(next) };
  if (value instanceof Set) return { $: name, values: [...value].map(next) };
  if (value instanceof Date) return { $: name, value: +value };
  if (value instanceof RegExp) return { $: name, value: String(value) };
  if (typeof Headers !== "undefined" && value instanceof Headers) return { $: name, entries: [...value].map(next) };
  if (typeof URL !== "undefined" && value instanceof URL) return { $: name, href: value.href };
  const fields = Object.fromEntries(Object.keys(value).sort().map((k) => [k, next(value[k])]));
  return name === "Object" ? fields : { $: name, ...fields };
}

function describeError(error, next) {
  const own = Object.fromEntries(Object.keys(error).filter((k) => !["stack"].includes(k)).sort().map((k) => [k, next(error[k])]));
  return { $error: error.name, class: error.constructor?.name, message: error.message, ...(Object.keys(own).length ? { own } : {}) };
}

