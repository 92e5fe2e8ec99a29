/**
 * The time during which a fleet's database is unreachable and work goes on without it. No caller waits for a database that
 * just failed to answer: it is asked in the background until it answers, and only a later call asks it again.
 */

import { Failure, isAway } from "../../../core/failure.ts";
import type { Fleet } from "../../../core/ports/fleet.ts";

/** Milliseconds within which a reachable database answers. */
const ANSWERS_WITHIN = 1000;

export class Outage {
  private readonly fleet: Pick<Fleet, "look">;
  private readonly isBack: Inquiry;
  private isOn = false;

  /** `every`: milliseconds between two questions to the database. `elapsed` returns the time since some moment. */
  constructor(fleet: Pick<Fleet, "look">, every: number, elapsed: () => number) {
    this.fleet = fleet;
    this.isBack = new Inquiry(every, elapsed, () => this.answers());
  }

  /** Returns true, or rejects if the database is unreachable. */
  private async answers(): Promise<boolean> {
    try {
      await this.fleet.look("");
    } catch (error) {
      // A database that refuses is there; the next write reports its answer.
      if (isAway(error) || !(error instanceof Failure)) throw error;
    }
    return true;
  }

  /** Returns whether the database is unreachable, as opposed to a missing answer for one session. */
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

  /** True if no caller should wait for the database. */
  get lasts(): boolean {
    if (this.isOn && this.isBack.take()) this.isOn = false;
    if (this.isOn) this.isBack.renew();
    return this.isOn;
  }
}

/** A question to a fleet in the background, because a database may answer slowly. */
export class Inquiry {
  private readonly every: number;
  private readonly elapsed: () => number;
  private readonly ask: () => Promise<boolean>;
  private isAsking = false;
  private asked = Number.NEGATIVE_INFINITY;
  private isYes = false;

  /** `every`: minimum milliseconds between two questions. A question that fails counts as no. */
  constructor(every: number, elapsed: () => number, ask: () => Promise<boolean>) {
    this.every = every;
    this.elapsed = elapsed;
    this.ask = ask;
  }

  /** Has it asked, when it is time: `every` so many milliseconds. */
  renew(every = this.every): void {
    if (this.isAsking || this.elapsed() - this.asked < every) return;
    this.isAsking = true;
    this.asked = this.elapsed();
    void this.find();
  }

  private async find(): Promise<void> {
    try {
      this.isYes = await this.ask();
    } catch {
      // Nothing is known, and it is asked again.
    } finally {
      this.isAsking = false;
    }
  }

  /** Returns whether the answer was yes since the last call. */
  take(): boolean {
    const { isYes } = this;
    this.isYes = false;
    return isYes;
  }

  /** Forgets the answer, and waits before the next question. */
  forget(): void {
    this.isYes = false;
    this.asked = this.elapsed();
  }
}
