/**
 * The debt of one working copy: what was acknowledged while the fleet was away, and may not be there. The journal of the
 * machine has it, and other processes of the machine may pay it, or add to it, whenever they have the session.
 */

import { damageOfEntry } from "../../core/format/damage.ts";
import type { FleetEnd, JournaledSession } from "../../core/ports/fleet.ts";
import type { CopiedLog } from "../log/outside.ts";
import type { Journal } from "./journal.ts";

export class Debt {
  private readonly log: CopiedLog;
  private readonly journal: Journal;
  /** The note of the journal, as it was read last; undefined while it was not asked. */
  private known: JournaledSession | null | undefined;
  /** The latest conflict of which was told. */
  private told: string | undefined;

  constructor(log: CopiedLog, journal: Journal) {
    this.log = log;
    this.journal = journal;
  }

  private get file(): string {
    return this.log.file ?? "";
  }

  /** Asks the journal again: others may have changed it. Throws storage_failed. */
  renew(): void {
    this.known = this.journal.of(this.log.header.id, this.file);
  }

  /** Returns what the journal said last. Where it cannot be asked, nothing is known. */
  get journaled(): JournaledSession | null {
    try {
      if (this.known === undefined) this.renew();
    } catch {
      // Whoever writes asks it again.
    }
    return this.known ?? null;
  }

  /** Whether entries were acknowledged that the fleet may lack. */
  get isOwed(): boolean {
    return this.journaled?.from != null;
  }

  /**
   * Whether it can be given to the fleet, or, where there is a host (`isHost`), told. A copy that nobody may write to, as
   * one with a damaged header, gives nothing: it takes the session from nobody.
   */
  isDue(isHost: boolean): boolean {
    return (this.isOwed && this.log.readOnly === null) || (isHost && this.isUntold);
  }

  /** Whether nobody was told yet that entries became a branch. */
  get isUntold(): boolean {
    return this.journaled?.isUntold === true && !this.isTold;
  }

  private get isTold(): boolean {
    return this.told !== undefined && this.journaled?.conflicts.at(-1)?.at === this.told;
  }

  /**
   * Notes that what is committed now has to be given to the fleet later, which surely has all up to an end, once it is on
   * the disk of this machine (`kept`).
   */
  async begin(end: FleetEnd, kept?: Promise<void>): Promise<void> {
    await kept;
    this.known = await this.journal.begin(this.log.header.id, this.file, end);
  }

  /** Notes that the fleet has all of it. */
  async end(): Promise<void> {
    // Whoever may not write here, as who brings a file in, has no say in what others owe.
    if (this.log.readOnly) return;
    try {
      this.renew();
      if (this.known?.from) await this.journal.end(this.known, this.isTold);
      this.renew();
    } catch {
      // It is found out again.
    }
  }

  /** Notes that the fleet has what this process has acknowledged. Returns false where a note says that more is owed. */
  paidByOthers(): boolean {
    this.journal.paidByOthers(this.log.header.id, this.file);
    this.renew();
    return !this.isOwed;
  }

  /** Tells, once, of a branch that was made of what was owed. This process has the session. */
  async tell(): Promise<void> {
    const { journaled } = this;
    const conflict = journaled?.conflicts.at(-1);
    if (!journaled || !conflict || !this.isUntold) return;
    this.told = conflict.at;
    const { entries, lastEntryId, renamed, names = [] } = conflict;
    const others = renamed === 0 ? "" : ` Of those, ${renamed} got another id, because others had given theirs.`;
    const sentence = `While the fleet's database was away, another machine wrote to this session, too. The ${entries} entries that were written here are a branch of it, which ends with this entry.${others}`;
    const damage = damageOfEntry(lastEntryId, "diverged", sentence);
    this.log.addDamage(names.length === 0 ? damage : { ...damage, renamed: names });
    // Who is killed before all of it is in the fleet tells it again.
    if (this.isOwed) return;
    await this.journal.end(journaled, true);
    this.renew();
  }
}
