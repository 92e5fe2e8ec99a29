/**
 * The time for which a fleet's database is away, where work goes on without it. Nobody waits for a database that was not
 * there a moment ago: it is asked in the background until it answers, and only whoever comes after that asks again.
 */

import { Failure } from "../../core/failure.ts";
import type { Fleet } from "../../core/ports/fleet.ts";
import { isAway } from "./failures.ts";
import { Inquiry } from "./inquiry.ts";

export class Outage {
  private readonly isBack: Inquiry;
  private isOn = false;

  /** `every`: milliseconds after which the database is asked again. `elapsed` returns the time since some moment. */
  constructor(fleet: Pick<Fleet, "look">, every: number, elapsed: () => number) {
    this.isBack = new Inquiry(every, elapsed, async () => {
      try {
        await fleet.look("");
      } catch (error) {
        // One that refuses is there, and whoever writes next is told what it says.
        if (isAway(error) || !(error instanceof Failure)) throw error;
      }
      return true;
    });
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
