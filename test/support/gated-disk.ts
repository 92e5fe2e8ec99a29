/** A disk on which a test decides when, and whether, written bytes reach the medium. */

import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";

/** A disk whose waits for the medium the test lets through one by one. */
export function gatedDisk(): { disk: Disk; waits: () => Promise<{ pass: () => void; fail: (code: string) => void }> } {
  const waiting: { pass: () => void; fail: (code: string) => void }[] = [];
  const wanted: ((gate: (typeof waiting)[number]) => void)[] = [];
  const disk: Disk = {
    ...realDisk,
    sync: () =>
      new Promise((resolve, reject) => {
        const gate = {
          pass: resolve,
          fail: (code: string) => reject(Object.assign(new Error(code), { code })),
        };
        const taker = wanted.shift();
        if (taker) taker(gate);
        else waiting.push(gate);
      }),
    syncFolder: () => Promise.resolve(),
  };
  return {
    disk,
    waits: () =>
      new Promise((resolve) => {
        const gate = waiting.shift();
        if (gate) resolve(gate);
        else wanted.push(resolve);
      }),
  };
}
