// Assembles src/gcd.wasm. This is what the bytes say:
//
//   (func (export "gcd") (param $a i32) (param $b i32) (result i32) (local $t i32)
//     (block $done (loop $again
//       (br_if $done (i32.eqz (local.get $b)))
//       (local.set $t (i32.rem_u (local.get $a) (local.get $b)))
//       (local.set $a (local.get $b))
//       (local.set $b (local.get $t))
//       (br $again)))
//     (local.get $a))
import { writeFileSync } from "node:fs";

const i32 = 0x7f;
const get = (n) => [0x20, n];
const set = (n) => [0x21, n];
const end = 0x0b;
const sized = (bytes) => [bytes.length, ...bytes]; // every part here is shorter than 128 bytes
const section = (id, ...bytes) => [id, ...sized(bytes)];
const text = (s) => sized([...new TextEncoder().encode(s)]);

const [a, b, t] = [0, 1, 2];
const body = [
  1, 1, i32, // one more local
  0x02, 0x40, // block $done
  0x03, 0x40, // loop $again
  ...get(b), 0x45, 0x0d, 1, // br_if $done (i32.eqz b)
  ...get(a), ...get(b), 0x70, ...set(t), // t = a rem_u b
  ...get(b), ...set(a),
  ...get(t), ...set(b),
  0x0c, 0, // br $again
  end, end,
  ...get(a),
  end,
];

writeFileSync(
  new URL("src/gcd.wasm", import.meta.url),
  new Uint8Array([
    0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, 1, 0x60, 2, i32, i32, 1, i32), // types
    ...section(3, 1, 0), // functions
    ...section(7, 1, ...text("gcd"), 0, 0), // exports
    ...section(10, 1, ...sized(body)), // code
  ]),
);
