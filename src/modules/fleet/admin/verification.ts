/** Verification of sessions of a fleet: their lines, stored heads and attachments. */

import { Failure } from "../../../core/failure.ts";
import { parseSessionHeader } from "../../../core/format/entry.ts";
import type { Fleet } from "../../../core/ports/fleet.ts";
import type { FleetFault } from "../../../core/ports/fleet-admin.ts";
import type { AdminQueries, CheckedRow, FleetRow } from "../../../core/ports/fleet-admin-queries.ts";
import { extendEnd, isSameEnd, NOTHING } from "../postgres/ends.ts";
import { parseDescription, toStorableText } from "../postgres/fact-parts.ts";
import { HeadCheck } from "../postgres/heads.ts";
import { fetchAttachments } from "../replica/attachments.ts";

/** Times that a session with faults is read, if it changes each time. */
const MOST_READ = 3;

const WHERE =
  "A machine with a whole copy has them: export <id> <file> writes them there; or restore a backup of the database.";
const UNREADABLE = `Its lines cannot be read, or have another hash chain than those that were acknowledged. ${WHERE}`;

const OF_A_PAGE = "cannot be read, as where a page of the database is damaged";
const ROW_UNREADABLE = `Its row in the table of sessions, or one that it had before, ${OF_A_PAGE}. ${WHERE}`;
const OTHERS_UNREADABLE = `Rows of the table of sessions ${OF_A_PAGE}, and may be of sessions that lists do not know: of those that were begun and have no lines, or that were removed for good. ${WHERE}`;

/** Returns the sentence about a session whose own row cannot be read, or, of null, about the table of sessions. */
export function explainUnreadableRow(sessionId: string | null): string {
  return sessionId === null ? OTHERS_UNREADABLE : ROW_UNREADABLE;
}

/** Returns whether a session should have its lines; one that is deleted has them until they are pruned. */
export function hasLines({ state, isRemoved }: FleetRow): boolean {
  return state === "there" || (state === "deleted" && !isRemoved);
}

/**
 * Returns the result of a read; null if it fails permanently. Throws storage_failed if the database is unreachable, or
 * refuses this process.
 */
export async function readIfUndamaged<T>(fleet: Pick<Fleet, "look">, read: () => Promise<T>): Promise<T | null> {
  for (let isAgain = false; ; isAgain = true)
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof Failure) || error.details.fleet !== true) throw error;
      // A database that answers this is there, and lets us in. No session has this id: no damaged row is in the way.
      await fleet.look("");
      if (!error.retryable || isAgain) return null;
    }
}

/** A kind of fault, with a sentence about it. */
type Wrong = readonly [fault: FleetFault["fault"], message: string];

export class FleetVerification {
  private readonly fleet: Fleet;
  private readonly adminQueries: AdminQueries;
  /** Digests of attachments that were found to be right. Each content is read once. */
  private readonly whole = new Set<string>();

  constructor(fleet: Fleet, adminQueries: AdminQueries) {
    this.fleet = fleet;
    this.adminQueries = adminQueries;
  }

  /**
   * Returns the faults of a session. Its lines are read after its row, and may be removed in between: if epoch or state
   * changed meanwhile, it is read again.
   */
  async faultsOf(row: FleetRow, tries = 1): Promise<FleetFault[]> {
    const { id } = row;
    const isDeleted = row.state === "deleted";
    const wrong = [...(await this.wrongIn(id)), ...(await this.wrongAttachments(id))];
    if (wrong.length === 0) return [];
    // If the row was damaged meanwhile, nothing else is known.
    const [now] = (await readIfUndamaged(this.fleet, async () => [await this.adminQueries.row(id)])) ?? [row];
    if (!now || !hasLines(now)) return [];
    if (now.epoch !== row.epoch && tries < MOST_READ) return this.faultsOf(now, tries + 1);
    return wrong.map(([fault, message]) => ({
      sessionId: id,
      fault,
      message: isDeleted ? `It is deleted, and may be restored. ${message}` : message,
    }));
  }

  private async wrongIn(id: string): Promise<Wrong[]> {
    const row = await readIfUndamaged(this.fleet, () => this.adminQueries.checked(id));
    if (!row) return [["chain", `Its rows ${OF_A_PAGE}. ${WHERE}`]];
    const { end, rows, hasGap, epochsFall, highestEpoch, epoch, indexed, isBehind, facts } = row;
    const isThere = row.state === "there";
    const wrong: Wrong[] = [];
    if (rows !== end.entries || hasGap)
      wrong.push(["missing_rows", `It says it has ${end.entries} entries and has ${rows}. ${WHERE}`]);
    else wrong.push(...(await this.wrongLines(row)));
    if (epochsFall || highestEpoch > epoch)
      wrong.push(["epochs", "A line has the epoch of a writer that had lost the session. Report it with this output."]);
    const stored = parseSessionHeader(row.headerLine);
    if (!stored || toStorableText(stored.id) !== id)
      wrong.push(["header", `Its header cannot be read, or is that of another session. ${WHERE}`]);
    if (indexed !== end.entries && rows === end.entries && !isBehind && isThere)
      wrong.push(["unindexed", "Lists and searches lack some of it: fleet migrate gathers that anew."]);
    else if (isThere && end.entries > 0 && !parseDescription(facts))
      wrong.push(["facts", "What lists show of it is missing, or cannot be read: fleet migrate gathers it anew."]);
    return wrong;
  }

  private async wrongLines({ id, end }: CheckedRow): Promise<Wrong[]> {
    const { fleet } = this;
    const heads = await readIfUndamaged(fleet, async () => {
      const all: string[] = [];
      for await (const some of fleet.heads(id, 0, end.entries)) for (const head of some) all.push(head);
      return all;
    });
    let areWrong = false;
    const reached = await readIfUndamaged(fleet, async () => {
      const check = new HeadCheck();
      let last = NOTHING;
      areWrong = false;
      for await (const lines of fleet.lines(id, 0, end.entries)) {
        for (const [n, line] of lines.entries()) areWrong ||= !check.fits(heads?.[last.entries + n] ?? "", line);
        last = extendEnd(last, lines);
      }
      return last;
    });
    if (!reached || !isSameEnd(reached, end) || reached.bytes !== end.bytes) return [["chain", UNREADABLE]];
    return areWrong
      ? [
          [
            "heads",
            "Its lines are right, and what the database keeps next to them (parents, types) is not: searches may name other entries. clone makes a session of it that has neither.",
          ],
        ]
      : [];
  }

  private async wrongAttachments(id: string): Promise<Wrong[]> {
    const { fleet, whole } = this;
    const named = await readIfUndamaged(fleet, () => fleet.attachments(id));
    if (!named) return [["attachment", "The list of its attachments cannot be read. Restore the database."]];
    const wrong: Wrong[] = [];
    const readable: Pick<Fleet, "attachments" | "attachment"> = {
      attachments: async () => named,
      attachment: (sha256) => readIfUndamaged(fleet, () => fleet.attachment(sha256)),
    };
    for await (const [sha256, bytes] of fetchAttachments(readable, id, (one) => whole.has(one)))
      if (bytes) whole.add(sha256);
      else
        wrong.push([
          "attachment",
          `Its attachment ${sha256} is missing or damaged. fleet import brings it from a folder with a whole copy.`,
        ]);
    return wrong;
  }
}
