package v8

import (
	"fmt"
	"strings"
)

// prelude generates about kb KB of plausible runtime JavaScript: classes,
// closures, tables and regular expressions.
func prelude(kb int) string {
	var b strings.Builder
	b.WriteString("globalThis.__prelude = {count:0};\n(() => {\n\"use strict\";\nconst P = globalThis.__prelude;\n")
	for i := 0; b.Len() < kb*1024; i++ {
		fmt.Fprintf(&b, `
const table%[1]d = Object.freeze({ name: "entry%[1]d", flags: [1, 2, 3, %[1]d], re: /^(?:a|b%[1]d)+\s*$/u, nested: { left: null, right: { value: %[1]d } } });
function helper%[1]d(input, options = {}) {
  if (input == null) throw new TypeError("helper%[1]d: expected a value, got " + input);
  const { depth = 0, limit = %[1]d, encoding = "utf-8" } = options;
  let out = [];
  for (const [k, v] of Object.entries(input)) {
    if (typeof v === "object" && v !== null && depth < limit) out.push(helper%[1]d(v, { depth: depth + 1, limit, encoding }));
    else if (typeof v === "string") out.push(v.replace(table%[1]d.re, (m) => m.toUpperCase()));
    else out.push(k + ":" + String(v));
  }
  return out.join(encoding === "utf-8" ? "," : ";");
}
P.Class%[1]d = class Class%[1]d {
  #secret = %[1]d; static registry = new Map();
  constructor(value) { this.value = value; this.items = []; Class%[1]d.registry.set(value, 1); }
  get secret() { return this.#secret; }
  sum() { let t = this.#secret; for (const x of this.items) t += x; return t + this.value; }
  async load(source) { const r = await source; if (!r) throw new Error("empty source in Class%[1]d"); this.items.push(...r); return this; }
  *walk() { for (const x of this.items) yield [x, table%[1]d.name]; }
  toJSON() { return { value: this.value, items: this.items.map((x) => helper%[1]d({ x })) }; }
};
P.count++;
`, i)
	}
	b.WriteString("})();\n")
	return b.String()
}
