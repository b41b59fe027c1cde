// FormData, and multipart/form-data both ways.
import { concat, decodeUTF8KeepBOM, encodeUTF8 } from "./bytes";
import { Blob, File, blobBytes } from "./blob";
import { parseForm } from "./urlparams";

type Value = string | File;

/** As in workerd, a blob without a file name gets the name of its field. */
function valueOf(field: string, value: unknown, name: string | undefined): Value {
  if (!(value instanceof Blob)) return String(value).toWellFormed();
  if (value instanceof File && name === undefined) return value;
  return new File([value], name ?? field, { type: value.type });
}

export class FormData {
  #list: [string, Value][] = [];

  append(name: string, value: unknown, filename?: string): void {
    this.#check("append", arguments.length, value, filename);
    const k = String(name).toWellFormed();
    this.#list.push([k, valueOf(k, value, filename === undefined ? undefined : String(filename))]);
  }

  set(name: string, value: unknown, filename?: string): void {
    this.#check("set", arguments.length, value, filename);
    const k = String(name).toWellFormed();
    const v = valueOf(k, value, filename === undefined ? undefined : String(filename));
    const first = this.#list.findIndex((p) => p[0] === k);
    if (first < 0) this.#list.push([k, v]);
    else this.#list = this.#list.filter((p, i) => i <= first || p[0] !== k).with(first, [k, v]);
  }

  #check(method: string, given: number, value: unknown, filename: unknown): void {
    if (given < 2) throw new TypeError(`Failed to execute '${method}' on 'FormData': 2 arguments required, but only ${given} present.`);
    if (filename !== undefined && !(value instanceof Blob)) throw new TypeError(`Failed to execute '${method}' on 'FormData': parameter 2 is not of type 'Blob'.`);
  }

  delete(name: string): void { this.#list = this.#list.filter((p) => p[0] !== String(name)); }
  get(name: string): Value | null { return this.#list.find((p) => p[0] === String(name))?.[1] ?? null; }
  getAll(name: string): Value[] { return this.#list.filter((p) => p[0] === String(name)).map((p) => p[1]); }
  has(name: string): boolean { return this.#list.some((p) => p[0] === String(name)); }

  forEach(f: (value: Value, name: string, form: FormData) => void, self?: unknown): void {
    for (const [k, v] of this) f.call(self, v, k, this);
  }

  *entries(): IterableIterator<[string, Value]> { for (let i = 0; i < this.#list.length; i++) yield [this.#list[i]![0], this.#list[i]![1]]; }
  *keys(): IterableIterator<string> { for (const [k] of this.entries()) yield k; }
  *values(): IterableIterator<Value> { for (const [, v] of this.entries()) yield v; }
  [Symbol.iterator](): IterableIterator<[string, Value]> { return this.entries(); }
}

const newline = "\r\n";
const escapes: Record<string, string> = { "\r": "%0D", "\n": "%0A", '"': "%22" };
const quote = (s: string) => s.replace(/[\r\n"]/g, (c) => escapes[c]!);

/** Serializes a form; boundary must not occur in it. */
export function toMultipart(form: FormData, boundary: string): Uint8Array {
  const chunks: Uint8Array[] = [];
  for (const [name, value] of form) {
    let head = `--${boundary}${newline}Content-Disposition: form-data; name="${quote(name)}"`;
    if (typeof value === "string") {
      chunks.push(encodeUTF8(head + newline + newline + value + newline));
      continue;
    }
    head += `; filename="${quote(value.name)}"${newline}Content-Type: ${value.type || "application/octet-stream"}`;
    chunks.push(encodeUTF8(head + newline + newline), blobBytes(value), encodeUTF8(newline));
  }
  chunks.push(encodeUTF8(`--${boundary}--`));
  return concat(chunks);
}

const wrongType = "Unrecognized Content-Type header value. FormData can only parse the following MIME types: multipart/form-data, application/x-www-form-urlencoded";

/** Parses a body by its Content-Type. */
export function parseFormBody(body: Uint8Array, contentType: string | null): FormData {
  if (contentType === null) throw new TypeError("Parsing a Body as FormData requires a Content-Type header.");
  const [type] = contentType.split(";", 1) as [string];
  switch (type.trim().toLowerCase()) {
    case "application/x-www-form-urlencoded": {
      const form = new FormData();
      for (const [k, v] of parseForm(decodeUTF8KeepBOM(body))) form.append(k, v);
      return form;
    }
    case "multipart/form-data": {
      const m = /;\s*boundary=(?:"([^"]*)"|([^;\s]*))/i.exec(contentType);
      const boundary = m?.[1] ?? m?.[2] ?? "";
      if (boundary === "") throw new TypeError("No boundary string in Content-Type header. The multipart/form-data MIME type requires a boundary parameter, e.g. 'Content-Type: multipart/form-data; boundary=\"abcd\"'. See RFC 7578, section 4.");
      return fromMultipart(body, boundary);
    }
  }
  throw new TypeError(wrongType);
}

/** One char code for each byte: delimiters can be found with indexOf. */
function latin1(b: Uint8Array): string {
  let s = "";
  for (let i = 0; i < b.length; i += 8192) s += String.fromCharCode.apply(null, b.subarray(i, i + 8192) as unknown as number[]);
  return s;
}

function fromMultipart(body: Uint8Array, boundary: string): FormData {
  const form = new FormData();
  const s = latin1(body);
  const fence = "--" + latin1(encodeUTF8(boundary));
  const fail = (): never => { throw new TypeError("The multipart/form-data body is malformed."); };
  let at = s.indexOf(fence);
  if (at < 0) {
    throw new TypeError("No initial boundary string (or you have a truncated message).");
  }
  for (;;) {
    at += fence.length;
    if (s.startsWith("--", at)) return form;
    while (s[at] === " " || s[at] === "\t") at++;
    at += s.startsWith(newline, at) ? 2 : s[at] === "\n" ? 1 : fail();
    const headEnd = s.indexOf(newline + newline, at - 2);
    if (headEnd < 0) throw new TypeError("No subsequent boundary string after multipart message.");
    const start = headEnd + 4;
    const end = s.indexOf(newline + fence, start - 2);
    if (end < 0) throw new TypeError("No subsequent boundary string after multipart message.");
    const head = decodeUTF8KeepBOM(body.subarray(at, Math.max(at, headEnd)));
    appendPart(form, head, body.subarray(start, Math.max(start, end)));
    at = end + 2;
  }
}

function appendPart(form: FormData, head: string, content: Uint8Array): void {
  const disposition = /^content-disposition:\s*form-data\s*;(.*)$/im.exec(head)?.[1];
  if (disposition === undefined) throw new TypeError("No valid Content-Disposition header found in FormData part.");
  const name = parameter(disposition, "name");
  if (name === undefined) throw new TypeError("Invalid Content-Disposition header found in FormData part: it has no name.");
  const filename = parameter(disposition, "filename");
  if (filename === undefined) return form.append(name, decodeUTF8KeepBOM(content));
  const type = /^content-type:\s*(.*?)\s*$/im.exec(head)?.[1] ?? "application/octet-stream";
  form.append(name, new File([content], filename, { type }));
}

const unescapes: Record<string, string> = { "%0D": "\r", "%0A": "\n", "%22": '"' };

function parameter(disposition: string, name: string): string | undefined {
  const m = new RegExp(`(?:^|;)\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]*))`, "i").exec(disposition);
  if (!m) return undefined;
  return (m[1]?.replace(/\\(["\\])/g, "$1") ?? m[2]!).replace(/%0D|%0A|%22/g, (c) => unescapes[c]!);
}
