/** A disk beside which something else happens. */

import type { FaultDisk } from "./disk.ts";

/** Does something before each call of a disk, which may make that one fail; calls are counted from 1. */
export function disturbed(disk: FaultDisk, before: (call: number, name: string) => void): FaultDisk {
  let calls = 0;
  return new Proxy(disk, {
    get(target, name) {
      const member = Reflect.get(target, name, target) as unknown;
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        before(++calls, String(name));
        return member.apply(target, given);
      };
    },
  });
}
