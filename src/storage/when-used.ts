/** Returns a function that makes something at its first call. */
export function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

/**
 * Returns an object that is made when it is first used: most processes never ask for most of what they could be asked for,
 * and loading and making all of it takes a seventh of what a start takes beyond Node's own. Calls of those named in `idle`
 * do nothing as long as it is not made.
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
