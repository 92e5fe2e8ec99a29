/** A disk with an event right before or after some of its operations; an exception refuses the operation. */

import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";

type Watched = "link" | "remove" | "rename" | "sync" | "syncFolder" | "write";
type Acts = { readonly [Name in Watched]?: (...given: Parameters<Disk[Name]>) => unknown };
type Act = (...given: unknown[]) => unknown;

export function meddleWith(before: Acts, after: Acts = {}, disk: Disk = realDisk): Disk {
  const watched = [...new Set([...Object.keys(before), ...Object.keys(after)])] as Watched[];
  const own = watched.map((name): [Watched, Act] => {
    const [first, real, then] = [before[name], disk[name], after[name]] as (Act | undefined)[];
    const now: Act = (...given) => {
      first?.(...given);
      const result = real?.(...given);
      then?.(...given);
      return result;
    };
    const later: Act = async (...given) => {
      await first?.(...given);
      await real?.(...given);
      await then?.(...given);
    };
    return [name, name.startsWith("sync") ? later : now];
  });
  return { ...disk, ...Object.fromEntries(own) };
}
