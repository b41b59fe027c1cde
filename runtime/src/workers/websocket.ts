// WebSockets between JavaScript and the host: the end of a pair that leaves with a response, and one that a response brings.

export function socketFromHost(_id: number): unknown {
  throw new Error("WebSockets of fetch() responses are not served yet.");
}
