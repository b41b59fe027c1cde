// DOMException, and the classes of errors that come from Go.

const codes: Record<string, number> = {
  IndexSizeError: 1, HierarchyRequestError: 3, WrongDocumentError: 4, InvalidCharacterError: 5, NoModificationAllowedError: 7,
  NotFoundError: 8, NotSupportedError: 9, InUseAttributeError: 10, InvalidStateError: 11, SyntaxError: 12, InvalidModificationError: 13,
  NamespaceError: 14, InvalidAccessError: 15, TypeMismatchError: 17, SecurityError: 18, NetworkError: 19, AbortError: 20,
  URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23, InvalidNodeTypeError: 24, DataCloneError: 25,
};

/** As in workerd, name, message and code are own properties of an instance. */
export class DOMException extends Error {
  declare readonly code: number;

  constructor(message: unknown = "", options: unknown = "Error") {
    super(String(message));
    const withCause = typeof options === "object" && options !== null;
    const name = withCause ? String((options as { name?: unknown }).name ?? "Error") : String(options);
    own(this, "message", String(message));
    own(this, "name", name);
    own(this, "code", codes[name] ?? 0);
    if (withCause && "cause" in options) Object.defineProperty(this, "cause", { value: options.cause, writable: true, configurable: true });
    restack(this, name);
  }
}

function own(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: true, configurable: true, enumerable: true });
}

/** The stack was captured before the name was known. */
function restack(e: Error, name: string): void {
  const rest = e.stack?.indexOf("\n    at ") ?? -1;
  const head = e.message === "" ? name : `${name}: ${e.message}`;
  Object.defineProperty(e, "stack", { value: head + (rest < 0 ? "" : e.stack!.slice(rest)), writable: true, configurable: true });
}

for (const [name, code] of Object.entries(codes)) {
  const constant = legacyConstant(name);
  for (const holder of [DOMException, DOMException.prototype]) Object.defineProperty(holder, constant, { value: code, enumerable: true });
}

/** IndexSizeError is INDEX_SIZE_ERR. */
function legacyConstant(name: string): string {
  const stem = name.replace(/Error$/, "").replace(/URL/, "Url");
  return stem.replace(/(?!^)[A-Z]/g, "_$&").toUpperCase() + "_ERR";
}

/** What workerd throws when an operation was aborted or ran out of time. */
export function abortError(name: "AbortError" | "TimeoutError" = "AbortError"): DOMException {
  const e = new DOMException(name === "AbortError" ? "The operation was aborted" : "The operation was aborted due to timeout", name);
  own(e, "retryable", true);
  return e;
}

const classes: Record<string, new (message: string) => Error> = { Error, TypeError, RangeError, SyntaxError, EvalError, ReferenceError };

/** The error of a given class: a name that JavaScript has, or that of a DOMException ("DOMSyntaxError" for its SyntaxError). */
export function errorOf(name: string, message: string): Error {
  if (name === "DOMSyntaxError") return new DOMException(message, "SyntaxError");
  const C = classes[name];
  return C ? new C(message) : new DOMException(message, name);
}

/** An API that exists so that it can say why it does not work. */
export function unsupported(what: string, instead = ""): Error {
  return new Error(`${what} is not supported by celld.${instead && " " + instead}`);
}
