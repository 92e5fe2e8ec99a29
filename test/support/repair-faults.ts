/** A repair that fails at any one operation of the disk is asked for again, and is done then; for every backend. */

import { expect } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import type { Session } from "../../src/core/session/session.ts";
import { type FaultDisk, faultPoints } from "./disk.ts";
import { share } from "./random.ts";

/** Repairs it. A failure says that nothing was changed only where no original is kept, and else names it. */
function repairTelling(disk: FaultDisk, session: Session): void {
  const kept = (): string[] => disk.paths().filter((path) => path.includes(".damaged.bak"));
  try {
    session.repair(false);
  } catch (error) {
    const { message } = error as Error;
    if (kept().length === 0) throw error;
    expect(message).not.toContain("Nothing was changed");
    expect(message).toContain(".damaged.bak");
    throw error;
  }
}

/**
 * Repairs what `damaged` makes with a fault at `count` of the operations where an error shows something, or at all
 * ({@link share}); `check` gets each disk with the story of it.
 */
export async function repairAgainAfterFaults(
  damaged: () => FaultDisk,
  open: (disk: FaultDisk) => Session,
  check: (disk: FaultDisk, operations: string) => void,
  count = 12,
): Promise<void> {
  const ask = async (disk: FaultDisk, session: Session): Promise<unknown> => {
    try {
      session.refreshToWrite();
      repairTelling(disk, session);
      await session.commit();
      return undefined;
    } catch (error) {
      return error;
    }
  };
  const whole = damaged();
  const unharmed = open(whole);
  whole.record();
  expect(await ask(whole, unharmed)).toBeUndefined();
  unharmed.close();
  const points = faultPoints("fail", whole);
  expect(points.length).toBeGreaterThan(10);
  for (const at of share(points, count)) {
    const disk = damaged();
    const session = open(disk);
    disk.set({ kind: "fail", at, errno: "EIO" });
    const failure = await ask(disk, session);
    expect(disk.struck, `operation ${at}`).toBe(true);
    const operations = disk.operations.join(" ");
    if (failure !== undefined) {
      expect(failure, operations).toBeInstanceOf(Failure);
      expect(await ask(disk, session), operations).toBeUndefined();
    }
    session.close();
    check(disk, operations);
  }
}
