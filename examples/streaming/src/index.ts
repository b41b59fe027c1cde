/** Streams in both directions: nothing is held in memory as a whole. */
export default {
  async fetch(request: Request): Promise<Response> {
    const url = new URL(request.url);
    switch (url.pathname) {
      case "/count":
        return new Response(count(Number(url.searchParams.get("to") ?? "3")), { headers: { "Content-Type": "text/plain" } });
      case "/upper":
        if (!request.body) return new Response("send a body\n", { status: 400 });
        return new Response(request.body.pipeThrough(upper()), { headers: { "Content-Type": "text/plain" } });
      case "/length":
        return new Response(String(await length(request.body)));
    }
    return new Response("GET /count?to=N, POST /upper, POST /length\n", { status: 404 });
  },
};

/** A line for each number, made when the client is ready for it. */
function count(to: number): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let n = 0;
  return new ReadableStream({
    pull(controller) {
      if (n >= to) return controller.close();
      controller.enqueue(encoder.encode(`${++n}\n`));
    },
  });
}

function upper(): TransformStream<Uint8Array, Uint8Array> {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  return new TransformStream({
    transform(chunk, controller) {
      controller.enqueue(encoder.encode(decoder.decode(chunk, { stream: true }).toUpperCase()));
    },
    flush(controller) {
      controller.enqueue(encoder.encode(decoder.decode().toUpperCase()));
    },
  });
}

async function length(body: ReadableStream<Uint8Array> | null): Promise<number> {
  let n = 0;
  if (body) for await (const chunk of body) n += chunk.byteLength;
  return n;
}
