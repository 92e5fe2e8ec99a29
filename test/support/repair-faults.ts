/** A repair that fails at any one operation of the disk is asked for again, and is done then; for every backend. */

import { expect } from "vitest";
import type { Session } from "../../src/core/session/session.ts";
import { becomeWriter } from "../../src/core/session/writer.ts";
import { requireOutcome, type Scenario, withFaults } from "./change-faults.ts";
import type { FaultDisk } from "./disk.ts";

/** Repairs it. A failure says that nothing was changed only where no original is kept, and else names it. */
function repairLogged(disk: FaultDisk, session: Session): void {
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
  const ask = async (disk: FaultDisk, session: Session): Promise<void> => {
    becomeWriter(session);
    repairLogged(disk, session);
    await session.commit();
  };
  let disk!: FaultDisk;
  const scenario: Scenario = {
    ...{ name: "a repair", open, ids: [], before: [], atLeast: 11 },
    disk() {
      disk = damaged();
      return disk;
    },
    change: (session) => ask(disk, session),
  };
  await withFaults(
    scenario,
    (at) => ({ kind: "fail", at, errno: "EIO" }),
    async (left) => {
      requireOutcome(left, scenario, []);
      if (left.failure !== undefined) await ask(left.disk, left.session);
      left.session.close();
      check(left.disk, left.at);
    },
    undefined,
    1,
    count,
  );
}
