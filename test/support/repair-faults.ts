/** A repair that fails at any one operation of the disk is asked for again, and is done then; for every backend. */

import { expect } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import type { Session } from "../../src/core/session/session.ts";
import type { FaultDisk } from "./disk.ts";

/** Repairs what `damaged` makes with a fault at every operation; `check` gets each disk with the story of it. */
export async function repairAgainAfterFaults(
  damaged: () => FaultDisk,
  open: (disk: FaultDisk) => Session,
  check: (disk: FaultDisk, operations: string) => void,
): Promise<void> {
  for (let at = 1, struck = true; struck; at++) {
    const disk = damaged();
    const session = open(disk);
    disk.set({ kind: "fail", at, errno: "EIO" });
    const ask = async (): Promise<unknown> => {
      try {
        session.refreshToWrite();
        session.repair(false);
        await session.commit();
        return undefined;
      } catch (error) {
        return error;
      }
    };
    const failure = await ask();
    struck = disk.struck;
    const operations = disk.operations.join(" ");
    if (failure !== undefined) {
      expect(failure, operations).toBeInstanceOf(Failure);
      expect(await ask(), operations).toBeUndefined();
    }
    session.close();
    check(disk, operations);
  }
}
