/** Returns a function that makes something at its first call. */
export function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

/**
 * Returns an object that is made at its first use: most processes never need most objects, and loading and making all of
 * them takes a seventh of the start-up time beyond Node's own. Until then, calls of the functions named in `idle` do
 * nothing.
 */
export function makeWhenUsed<T extends object>(make: () => T, idle: readonly (keyof T)[] = []): T {
  let made: T | undefined;
  return new Proxy({} as T, {
    get(_, name) {
      if (made === undefined && idle.includes(name as keyof T)) return () => {};
      made ??= make();
      const member: unknown = Reflect.get(made, name);
      return typeof member === "function" ? member.bind(made) : member;
    },
  });
}
