/** Params that go by either of two names, because commands that belong together have both. */

import { BadParams } from "../../core/failure.ts";

/** Returns the value that one of two names has; undefined where neither has one. Throws BadParams where they differ. */
export function chooseName<T>(name: string, value: T, other: string, otherValue: T): T {
  if (value !== undefined && otherValue !== undefined && value !== otherValue)
    throw new BadParams([{ path: other, message: `must be the same as ${name}; one of them is enough` }]);
  return value === undefined ? otherValue : value;
}

/** Returns the value that one of two names has. Throws BadParams. */
export function requireOneName<T>(name: string, value: T | undefined, other: string, otherValue: T | undefined): T {
  const found = chooseName(name, value, other, otherValue);
  if (found === undefined) throw new BadParams([{ path: name, message: "is missing (a string or null)" }]);
  return found;
}
