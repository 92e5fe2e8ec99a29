/**
 * The log of a session that was opened before all its lines were here. Its nodes are those of the whole session, and it
 * holds the lines that were asked for, which are fetched by their positions. Meanwhile all lines come into a file, which
 * is not the session before it is whole; from then on this log says that it was replaced.
 */

import { Failure } from "../../core/failure.ts";
import { CURRENT_VERSION } from "../../core/format/entry.ts";
import { concat } from "../../core/json/json.ts";
import { type Arrival, closedOnItsWay, NotHere } from "../../core/ports/arrival.ts";
import type { FleetSession } from "../../core/ports/fleet.ts";
import type { Beginning, Change, Log } from "../../core/ports/store.ts";
import { LF } from "../log/lines.ts";
import type { Spine } from "./heads.ts";
import { HeldLines } from "./held-lines.ts";
import { type TransferPlace, transfer } from "./transfer.ts";

/** A session on its way, and the place where it will be. */
interface SessionOnItsWay {
  readonly session: FleetSession;
  /** With its file. */
  readonly beginning: Beginning & { readonly file: string };
  /** The name of its store. */
  readonly store: string;
  readonly spine: Spine;
}

export class ArrivingLog implements Log, Arrival {
  readonly version = CURRENT_VERSION;
  readonly nodes: Log["nodes"];
  readonly damage = [];
  readonly readOnly = null;
  readonly lockedBy = null;
  readonly persisted = true;
  readonly stamp = null;
  readonly mayHideEntries = false;
  readonly repairable = [];
  readonly arrival = this;
  private readonly place: TransferPlace;
  private readonly coming: SessionOnItsWay;
  private readonly lines: HeldLines;
  private transfer: Promise<void> | undefined;
  private tries = 0;
  /** The log in this one's place, while nobody has it. */
  private successor: Log | undefined;
  isOver = false;
  private isClosed = false;
  private giveUp: (reason: Failure) => void = () => {};
  /** Rejects when the log is closed. */
  private readonly closed = new Promise<never>((_, reject) => {
    this.giveUp = reject;
  });

  constructor(place: TransferPlace, coming: SessionOnItsWay) {
    const { spine, session } = coming;
    this.place = place;
    this.coming = coming;
    this.nodes = spine.nodes;
    this.lines = new HeldLines(place.fleet, session.id, spine);
    this.closed.catch(() => {});
  }

  get store(): string {
    return this.coming.store;
  }

  get file(): string {
    return this.coming.beginning.file;
  }

  get header(): Log["header"] {
    return this.coming.beginning.header;
  }

  get headerLine(): Uint8Array {
    return this.coming.beginning.headerLine;
  }

  get durableCount(): number {
    return this.nodes.count;
  }

  // --- lines ---------------------------------------------------------------------------------------------------

  length(position: number): number {
    return this.coming.spine.lengths[position];
  }

  read(position: number): Uint8Array {
    const line = this.lines.get(position) ?? this.successor?.read(position);
    if (!line) throw new NotHere(() => this.bring(this.lines.around(position)));
    return line;
  }

  *readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    const lacking = this.successor ? [] : this.lines.lacking(positions);
    if (lacking.length === 1) this.read(lacking[0]);
    if (lacking.length > 0) throw new NotHere(() => this.bring(lacking));
    for (let i = 0; i < positions.length; i++) yield this.read(positions[i]);
  }

  *copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    for (const line of this.readMany(positions)) yield concat([line, LF]);
  }

  /** Fetches lines, or waits for the whole where they are too many to be held. */
  async bring(positions: readonly number[]): Promise<void> {
    if (this.isClosed || (this.isOver && !this.successor)) throw closedOnItsWay();
    if (!this.isOver && !(await this.lines.fetch(positions))) await this.whole();
  }

  attachment(): string | null {
    throw new NotHere(() => this.whole());
  }

  // --- the whole -----------------------------------------------------------------------------------------------

  whole(): Promise<void> {
    if (this.isOver) return Promise.resolve();
    this.transfer ??= this.come().finally(() => {
      this.transfer = undefined;
    });
    return this.transfer;
  }

  /** Has the rest come while nobody waits for it. */
  goOn(): void {
    // Whoever needs it tries again, and hears why it failed.
    this.whole().catch(() => {});
  }

  private async come(): Promise<void> {
    const { session, beginning } = this.coming;
    if (this.tries++ > 0 && !(await this.place.fleet.look(session.id))) throw this.gone();
    if (this.isClosed) throw closedOnItsWay();
    const log = await transfer(this.place, session, beginning, this.closed);
    if (this.isClosed) return log.close();
    this.successor = log;
    this.isOver = true;
    this.lines.clear();
  }

  private gone(): Failure {
    const sentence = "The session was deleted while it was on its way here.";
    return new Failure("session_not_found", sentence, { sessionId: this.header.id });
  }

  get ended(): Promise<void> {
    return (this.transfer ?? Promise.resolve()).catch(() => {});
  }

  refresh(): Change {
    if (this.isOver) return { kind: "replaced" };
    if (!this.transfer) this.goOn();
    return { kind: "none" };
  }

  reopen(): Log {
    const next = this.successor ?? this.place.open(this.file);
    this.successor = undefined;
    return next;
  }

  close(): void {
    this.isClosed = true;
    this.giveUp(closedOnItsWay());
    this.lines.clear();
    this.successor?.close();
    this.successor = undefined;
  }

  // --- what only the whole can do ------------------------------------------------------------------------------

  acquireLock(): boolean {
    throw new NotHere(() => this.whole());
  }

  unlock(): void {}

  append(): void {
    throw new NotHere(() => this.whole());
  }

  async commit(): Promise<void> {}

  rollBack(): void {}

  repair(): string | null {
    throw new NotHere(() => this.whole());
  }
}
