/** The lease of one working copy: its epoch, and whether it can be relied on. */

import type { LeaseResult } from "../../../core/ports/fleet.ts";
import type { FleetOptions } from "./options.ts";

type LeaseOptions = Pick<FleetOptions, "fleet" | "elapsed" | "trustedFor">;

export class Lease {
  private readonly id: string;
  private readonly options: LeaseOptions;
  /** Null when this process does not have the session, or when that is not sure. */
  epoch: number | null = null;
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

  /** Drops an epoch, unless there is another by now: the next writer takes the lease, and gets the fleet's end. */
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
