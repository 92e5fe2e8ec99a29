/**
 * The time for which a fleet's database is away, where work goes on without it. Nobody waits for a database that was not
 * there a moment ago: it is asked in the background until it answers, and only whoever comes after that asks again.
 */

import { Failure } from "../../core/failure.ts";
import type { Fleet } from "../../core/ports/fleet.ts";
import { isAway } from "./failures.ts";
import { Inquiry } from "./inquiry.ts";

/** Milliseconds within which a database that is there says so. */
const ANSWERS_WITHIN = 1000;

export class Outage {
  private readonly fleet: Pick<Fleet, "look">;
  private readonly isBack: Inquiry;
  private isOn = false;

  /** `every`: milliseconds after which the database is asked again. `elapsed` returns the time since some moment. */
  constructor(fleet: Pick<Fleet, "look">, every: number, elapsed: () => number) {
    this.fleet = fleet;
    this.isBack = new Inquiry(every, elapsed, () => this.answers());
  }

  /** Returns true, or rejects where the database is away. */
  private async answers(): Promise<boolean> {
    try {
      await this.fleet.look("");
    } catch (error) {
      // One that refuses is there, and whoever writes next is told what it says.
      if (isAway(error) || !(error instanceof Failure)) throw error;
    }
    return true;
  }

  /** Returns whether the database is away, and not something of one session, of which there was no answer. */
  async begins(): Promise<boolean> {
    let late: NodeJS.Timeout | undefined;
    const lateness = new Promise<boolean>((resolve) => {
      late = setTimeout(resolve, ANSWERS_WITHIN, false);
    });
    const isThere = !this.isOn && (await Promise.race([this.answers().catch(() => false), lateness]));
    clearTimeout(late);
    if (!isThere) this.begin();
    return !isThere;
  }

  /** Notes that the database did not answer. */
  begin(): void {
    this.isOn = true;
    this.isBack.forget();
  }

  /** Whether nobody should wait for the database. */
  get lasts(): boolean {
    if (this.isOn && this.isBack.take()) this.isOn = false;
    if (this.isOn) this.isBack.renew();
    return this.isOn;
  }
}
