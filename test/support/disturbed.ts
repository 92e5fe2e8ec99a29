/** Disks and other objects with an event at their calls. */

import type { FaultDisk } from "./disk.ts";

/** Wraps a thing: `around` gets each call of its functions, and returns what that gives. */
export function wrapped<T extends object>(
  thing: T,
  around: (call: () => unknown, name: string, given: readonly unknown[]) => unknown,
): T {
  return new Proxy(thing, {
    get(target, name) {
      const member = Reflect.get(target, name, target) as unknown;
      // Not every member is a function, nor of every disk.
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => around(() => member.apply(target, given), String(name), given);
    },
  });
}

/** Does something before each call of a disk, which may make that one fail; calls are counted from 1. */
export function disturbed(disk: FaultDisk, before: (call: number, name: string) => void): FaultDisk {
  let calls = 0;
  return wrapped(disk, (call, name) => {
    before(++calls, name);
    return call();
  });
}
