/**
 * Strict shapes of documents: what each member must be, in the order in which the members are written. zod could do
 * this, but the library would load it for this alone: 90 KB, and an import that takes half as long again.
 */

import { Malformed } from "./frame.ts";

/**
 * A check that returns the value, with the members of objects in order. It throws {@link Malformed}, naming the path.
 */
export type Shape<T> = (value: unknown, path: string) => T;

/** The type that a shape accepts. */
export type Of<S> = S extends Shape<infer T> ? T : never;

type Optional<T> = Shape<T> & { readonly isOptional: true };
type ObjectOf<S> = {
  readonly [N in keyof S as S[N] extends Optional<unknown> ? never : N]: Of<S[N]>;
} & {
  readonly [N in keyof S as S[N] extends Optional<unknown> ? N : never]?: Of<S[N]>;
};

function accept<T>(accepts: (value: unknown) => boolean, is: string): Shape<T> {
  return (value, path) => {
    if (accepts(value)) return value as T;
    throw new Malformed(`${path} is not ${is}`);
  };
}

export const flag = accept<boolean>((value) => typeof value === "boolean", "true or false");

export function text(pattern = /^/): Shape<string> {
  return accept((value) => typeof value === "string" && pattern.test(value), "as it must be");
}

/** Accepts whole numbers from `least` on. */
export function count(least = 0): Shape<number> {
  return accept((value) => Number.isSafeInteger(value) && (value as number) >= least, "a number that counts");
}

export function constant<const T extends string | number>(expected: T): Shape<T> {
  return accept((value) => value === expected, JSON.stringify(expected));
}

export function oneOf<const T extends string>(values: readonly T[]): Shape<T> {
  return accept((value) => values.includes(value as T), `one of ${values.join(", ")}`);
}

export function orNull<T>(shape: Shape<T>): Shape<T | null> {
  return (value, path) => (value === null ? null : shape(value, path));
}

/** Lets a member be absent; null counts as absent. */
export function optional<T>(shape: Shape<T>): Optional<T> {
  return Object.assign(((value, path) => shape(value, path)) as Shape<T>, { isOptional: true as const });
}

/** Accepts objects with these members and no others. */
export function object<S extends Readonly<Record<string, Shape<unknown>>>>(members: S): Shape<ObjectOf<S>> {
  const check: Shape<ObjectOf<S>> = (value, path) => {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw new Malformed(`${path} is not a JSON object`);
    for (const name of Object.keys(value))
      if (!Object.hasOwn(members, name)) throw new Malformed(`${path} has no member ${name}`);
    const given = value as Readonly<Record<string, unknown>>;
    const result: Record<string, unknown> = {};
    for (const [name, shape] of Object.entries(members)) {
      const isAbsent = (given[name] ?? null) === null;
      if (isAbsent && "isOptional" in shape) continue;
      if (given[name] === undefined) throw new Malformed(`${path}: the member ${name} is missing`);
      result[name] = shape(given[name], `${path}.${name}`);
    }
    return result as ObjectOf<S>;
  };
  return Object.assign(check, { members });
}

/** Returns a value with the members of its objects in order. It judges nothing: no write fails for what it says. */
export function inOrder<T>(shape: Shape<T>, value: T): T {
  if (!("members" in shape)) return value;
  const given = value as Readonly<Record<string, unknown>>;
  const ordered: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(shape.members as Readonly<Record<string, Shape<unknown>>>))
    if (given[name] !== undefined) ordered[name] = inOrder(member, given[name]);
  return ordered as T;
}
