/** Repairs of stored sessions: damage goes out of the session, and what entries lack is added. */

import type { Damage } from "../format/damage.ts";
import type { OperationLog, StepOf } from "../ports/operations.ts";
import type { Log } from "../ports/store.ts";
import type { ForeignChanges } from "./refresh.ts";

/** The step of a repair; its backup and entries are known later. */
type RepairStep = StepOf<"swap">;

/** An entry that a repair completes. */
export interface Incomplete {
  readonly position: number;
  readonly damage: Damage;
  complete(line: Uint8Array): Uint8Array;
}

export interface Repair {
  readonly repaired: readonly Damage[];
  readonly backupPath: string | null;
  readonly operationId?: string;
  readonly step?: RepairStep;
}

/** A session, as its repair needs it. */
interface Repairable {
  readonly id: string;
  readonly name: string | null;
  readonly title: string;
  readonly file: string | null;
  readonly log: Log;
  readonly foreign: ForeignChanges;
  readonly operations: OperationLog | undefined;
}

/**
 * Removes damage from a stored session, and adds what entries lack. Every body is read first, so that damage that was
 * not found yet counts too. Throws session_locked, read_only, storage_failed.
 */
export function repaired<S extends Repairable>(
  session: S,
  dryRun: boolean,
  lackingIn: (session: S) => readonly Incomplete[],
): Repair {
  for (let position = 0; position < session.log.nodes.count; position++) session.log.read(position);
  if (session.log.mayHideEntries) session.foreign.rebase();
  const lacking = session.log.persisted ? lackingIn(session) : [];
  const found = [...session.log.repairable, ...lacking.map(({ damage }) => damage)];
  if (dryRun) return { repaired: found, backupPath: null };
  const begun = found.length === 0 ? undefined : begin(session);
  let backupPath: string | null = null;
  try {
    backupPath = session.log.repair(new Map(lacking.map((one) => [one.position, (line) => one.complete(line)])));
  } finally {
    if (backupPath === null && begun) session.operations?.failed([begun.operationId]);
  }
  if (backupPath === null) return { repaired: found, backupPath };
  session.foreign.rebase(undefined, { isRepair: true });
  return { repaired: found, backupPath, ...begun };
}

function begin({
  id,
  name,
  title,
  file,
  log,
  operations,
}: Repairable): { operationId: string; step: RepairStep } | undefined {
  if (!operations || !log.stamp || file === null) return undefined;
  const step = { do: "swap" as const, path: file, inode: log.stamp.inode };
  const operation = {
    kind: "repair" as const,
    text: `Repaired ${title}.`,
    step,
    sessionId: id,
    sessionPath: file,
    name,
  };
  return { operationId: operations.beginNow(operation).id, step };
}
