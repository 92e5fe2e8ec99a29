/** The tenure of one working copy: the epoch in which this process has the session, and whether that can be relied on. */

import type { LeaseResult } from "../../core/ports/fleet.ts";
import type { FleetOptions } from "./options.ts";

type LeaseOptions = Pick<FleetOptions, "fleet" | "elapsed" | "trustedFor">;

export class Lease {
  private readonly id: string;
  private readonly options: LeaseOptions;
  /** Null when this process does not have the session, or when that is not sure. */
  epoch: number | null = null;
  /** The highest epoch that it had. */
  private highest = 0;
  /** Whether the fleet may think that this process has the session. */
  private mayHold = false;
  /** The server that said last what the fleet has. Where another one was promoted, it may lack some of that. */
  server: string | undefined;
  /** When the fleet was asked what it last answered to who has this epoch. */
  answered = 0;

  constructor(id: string, options: LeaseOptions) {
    this.id = id;
    this.options = options;
  }

  /** Whether this process has the session: the fleet has said so a moment ago. */
  get isSure(): boolean {
    const { elapsed, trustedFor, fleet } = this.options;
    const heardAgo = Math.min(elapsed() - this.answered, fleet.renewedAgo(this.id));
    return this.epoch !== null && heardAgo < trustedFor && !this.hasMoved;
  }

  /** Whether nobody else has the session. One that rests may be another's, which the next write finds out, too. */
  get isOurs(): boolean {
    return this.isSure && !this.options.fleet.mayBeTaken(this.id);
  }

  /** Whether another server was promoted since it was last said what the fleet has. */
  get hasMoved(): boolean {
    const { server } = this.options.fleet;
    return server !== undefined && this.server !== undefined && server !== this.server;
  }

  /** Takes the session. With a header, one that the fleet lacks is begun. */
  async take(headerLine: Uint8Array | undefined): Promise<LeaseResult> {
    this.epoch = null;
    this.mayHold = true;
    const { fleet, elapsed } = this.options;
    const asked = elapsed();
    const taking = await fleet.take(this.id, this.highest, headerLine);
    // Others may have been answered by another server meanwhile.
    if (taking.kind !== "away") this.server = taking.kind === "taken" ? taking.server : fleet.server;
    if (taking.kind !== "taken") return taking;
    this.epoch = taking.epoch;
    this.highest = Math.max(this.highest, taking.epoch);
    this.answered = asked;
    return taking;
  }

  /** Gives up an epoch, unless there is another by now: whoever writes next takes the session, and learns what is there. */
  letGo(epoch: number): void {
    if (this.epoch === epoch) this.epoch = null;
  }

  release(): void {
    const epoch = this.epoch ?? this.highest;
    this.epoch = null;
    if (this.mayHold) this.options.fleet.release(this.id, epoch).catch(() => {});
    this.mayHold = false;
  }
}
