// Calls into Go from this folder. An op is looked up when it is first used, so that loading this folder asks nothing
// of the tables. Errors arrive with their class: the engine makes them with errorOf of exception.ts.
import { async, sync } from "../host";

type Fn = (...args: any[]) => any;

/** A Go function that works inline. */
export function op<R = any>(name: string): (...args: any[]) => R {
  let f: Fn | undefined;
  return (...args) => (f ??= sync(name))(...args);
}

/** A Go function that works elsewhere and settles a promise. */
export function job<R = any>(name: string): (...args: any[]) => Promise<R> {
  let f: Fn | undefined;
  return (...args) => (f ??= async(name))(...args);
}
