/** The search for sessions whose facts a process left behind that has ended. */

/** Milliseconds after which a server looks for the first time: one that is about to end does not begin. */
const FIRST = 10_000;
/** Milliseconds after which it looks again, once nothing was found. */
const EVERY = 600_000;

export class LateSweep {
  private readonly finish: () => Promise<boolean>;
  private timer: NodeJS.Timeout;
  private isOver = false;

  /** `finish` adds the facts of one session, and returns whether there was one. */
  constructor(finish: () => Promise<boolean>, first = FIRST) {
    this.finish = finish;
    this.timer = this.after(first);
  }

  private after(milliseconds: number): NodeJS.Timeout {
    return setTimeout(() => void this.look(), milliseconds).unref();
  }

  private async look(): Promise<void> {
    try {
      while (!this.isOver && (await this.finish())) {
        // The next one.
      }
    } catch {
      // The database is away, or its tables have another version: another time.
    }
    if (!this.isOver) this.timer = this.after(EVERY);
  }

  end(): void {
    this.isOver = true;
    clearTimeout(this.timer);
  }
}
