/**
 * Whether this process may write to a session of the fleet. The states:
 *
 * - unasked: nothing is known, or the last answer is in doubt; the next write asks (`epoch` is null).
 * - ours: this process has the session in an epoch, surely while the fleet confirmed it a moment ago (`isSure`).
 * - held: another process had the session when the fleet was asked last (`holder`).
 * - refused: a write fails with `refusal`, until a write or a look finds that the reason no longer holds.
 * - alone: the database is away, and writes go to the journal, although another process may have the session (`Outage`).
 */

import type { Failure } from "../../../core/failure.ts";
import type { FleetSession, LeaseResult } from "../../../core/ports/fleet.ts";
import type { Holder } from "../../../core/ports/lock.ts";
import type { FleetOptions } from "./options.ts";
import { getLastingRefusal } from "./refusals.ts";

type LeaseOptions = Pick<FleetOptions, "fleet" | "elapsed" | "trustedFor">;

/** The effects of events on the facts about a lease; the other facts stay. Answers to `take` set epoch and holder. */
const EFFECTS = {
  /** A write is about to ask. */
  asks: { refusal: "forgotten", holder: "forgotten" },
  /** Work goes on without the fleet. */
  goesAlone: { refusal: "kept if it lasts", holder: "forgotten" },
  /** The fleet gave no clear answer, or the copy is not what the fleet has: the next writer takes the lease again. */
  doubts: { epoch: "forgotten" },
  /** The fleet was asked for the session without taking the lease. */
  looks: { refusal: "kept if it lasts" },
} as const;

export class Lease {
  private readonly id: string;
  private readonly options: LeaseOptions;
  private currentEpoch: number | null = null;
  private currentHolder: Holder | null = null;
  private currentRefusal: Failure | null = null;
  /** The highest epoch that it had. */
  private highest = 0;
  /** True if the fleet may regard this process as the owner. */
  private mayHold = false;
  /** The server that last reported the fleet's end. A server that was promoted since may lack some of it. */
  server: string | undefined;
  /** Time at which the last answered statement of this epoch was sent. */
  answered = 0;

  constructor(id: string, options: LeaseOptions) {
    this.id = id;
    this.options = options;
  }

  /** Null when this process does not have the session, or when that is not sure. */
  get epoch(): number | null {
    return this.currentEpoch;
  }

  /** Another process that writes to the session there. */
  get holder(): Holder | null {
    return this.currentHolder;
  }

  /** The reason why this process may not write. */
  get refusal(): Failure | null {
    return this.currentRefusal;
  }

  /** Notes an event. `there`: the fleet's session, if it was asked for and exists. */
  note(event: keyof typeof EFFECTS, there: FleetSession | null = null): void {
    const effects: { epoch?: string; holder?: string; refusal?: string } = EFFECTS[event];
    if (effects.epoch) this.currentEpoch = null;
    if (effects.holder) this.currentHolder = null;
    if (effects.refusal === "forgotten") this.currentRefusal = null;
    else if (effects.refusal) this.currentRefusal = getLastingRefusal(this.currentRefusal, there);
  }

  /** Notes that a write would fail. */
  refuse(refusal: Failure): void {
    this.currentRefusal = refusal;
  }

  /** Notes who has the session, after it was seen without a question for the lease. */
  noteHolder(holder: Holder | null): void {
    this.currentHolder = holder;
  }

  /** True if this process surely has the lease: the fleet confirmed it a moment ago. */
  get isSure(): boolean {
    const { elapsed, trustedFor, fleet } = this.options;
    const heardAgo = Math.min(elapsed() - this.answered, fleet.renewedAgo(this.id));
    return this.epoch !== null && heardAgo < trustedFor && !this.hasMoved;
  }

  /** True if no other process has the lease. Others may take an idle session; the next write finds it out. */
  get isOurs(): boolean {
    return this.isSure && !this.options.fleet.mayBeTaken(this.id);
  }

  /** True if another server was promoted since the fleet last reported an end. */
  get hasMoved(): boolean {
    const { server } = this.options.fleet;
    return server !== undefined && this.server !== undefined && server !== this.server;
  }

  /** Takes the session. With a header, one that the fleet lacks is begun. */
  async take(headerLine: Uint8Array | undefined): Promise<LeaseResult> {
    this.currentEpoch = null;
    this.mayHold = true;
    const { fleet, elapsed } = this.options;
    const asked = elapsed();
    const taking = await fleet.take(this.id, this.highest, headerLine);
    // Others may have been answered by another server meanwhile.
    if (taking.kind !== "away") this.server = taking.kind === "taken" ? taking.server : fleet.server;
    this.currentHolder = taking.kind === "held" ? taking.holder : null;
    if (taking.kind !== "taken") return taking;
    this.currentEpoch = taking.epoch;
    this.highest = Math.max(this.highest, taking.epoch);
    this.answered = asked;
    return taking;
  }

  /** Drops an epoch, unless there is another by now: the next writer takes the lease, and gets the fleet's end. */
  letGo(epoch: number): void {
    if (this.epoch === epoch) this.currentEpoch = null;
  }

  release(): void {
    const epoch = this.epoch ?? this.highest;
    this.currentEpoch = null;
    if (this.mayHold) this.options.fleet.release(this.id, epoch).catch(() => {});
    this.mayHold = false;
  }
}
