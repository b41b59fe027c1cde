import module from "./gcd.wasm"; // a WebAssembly.Module, made by build.mjs

const gcd = new WebAssembly.Instance(module).exports.gcd as (a: number, b: number) => number;

export default {
  async fetch(request: Request): Promise<Response> {
    const url = new URL(request.url);
    const a = Number(url.searchParams.get("a") ?? "12");
    const b = Number(url.searchParams.get("b") ?? "18");
    return new Response(String(gcd(a, b)));
  },
};
