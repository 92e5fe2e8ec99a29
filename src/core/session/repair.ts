/** Repairs of stored sessions: removes damage, and adds missing members of entries. */

import { toUnfinishedFailure } from "../errno.ts";
import { Failure } from "../failure.ts";
import type { Damage } from "../format/damage.ts";
import type { OperationLog, StepOf } from "../ports/operations.ts";
import type { Log } from "../ports/store.ts";
import type { ExternalChanges } from "./refresh.ts";

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
  readonly externalChanges: ExternalChanges;
  readonly operations: OperationLog | undefined;
}

/**
 * Removes damage from a stored session, and adds missing members of entries. Every body is read first, so that damage
 * that was not found yet counts too. Throws session_locked, read_only, storage_failed.
 */
export function repairSession<S extends Repairable>(
  session: S,
  dryRun: boolean,
  lackingIn: (session: S) => readonly Incomplete[],
): Repair {
  for (let position = 0; position < session.log.nodes.count; position++) session.log.read(position);
  if (session.log.mayHideEntries) session.externalChanges.rebase();
  const lacking = session.log.persisted ? lackingIn(session) : [];
  const found = [...session.log.repairable, ...lacking.map(({ damage }) => damage)];
  if (dryRun) return { repaired: found, backupPath: null };
  const begun = found.length === 0 ? undefined : begin(session);
  let backupPath: string | null = null;
  try {
    backupPath = session.log.repair(new Map(lacking.map((one) => [one.position, (line) => one.complete(line)])));
    if (backupPath !== null) session.externalChanges.rebase(undefined, { isRepair: true });
  } catch (error) {
    const refused = backupPath === null ? error : toRepairedFailure(error, "reading the repaired session", backupPath);
    const kept = refused instanceof Failure ? refused.details.backupPath : undefined;
    if (begun && typeof kept === "string") noteRepaired(session, begun, kept);
    else if (begun) session.operations?.failed([begun.operationId]);
    throw refused;
  }
  if (backupPath !== null) return { repaired: found, backupPath, ...begun };
  if (begun) session.operations?.failed([begun.operationId]);
  return { repaired: found, backupPath };
}

export const MAKING_DURABLE = "making the repaired session durable";

/** Returns the failure for an error after which the repaired session is nevertheless in its place. */
export function toRepairedFailure(error: unknown, doing: string, backupPath: string, more = ""): Failure {
  const state = `The session is repaired all the same, and the original is at ${backupPath}.${more}`;
  return toUnfinishedFailure(error, doing, state, { backupPath });
}

/** Returns it for a repaired session whose name could not be made durable. */
export function toRepairedLostFailure(error: unknown, backupPath: string): Failure {
  const more = " A loss of power may bring that back; repair_session once more makes the repair durable.";
  return toRepairedFailure(error, MAKING_DURABLE, backupPath, more);
}

/** Records that a session was repaired. */
export function noteRepaired(
  { operations, log }: Pick<Repairable, "operations" | "log">,
  { operationId, step }: { readonly operationId: string; readonly step: RepairStep },
  backupPath: string,
): void {
  operations?.done(operationId, { step: { ...step, other: backupPath, count: log.nodes.count } });
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
