/** The search for sessions whose facts a process left behind that has ended. */

/** Milliseconds until a server looks for the first time; one that ends soon never does. */
const FIRST = 10_000;
/**
 * Average milliseconds between two looks after one without result. Each look makes a connection: of 10,000 idle servers
 * the database gets eleven a second.
 */
const EVERY = 900_000;

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
      // The database is unreachable, or its tables have another version; it is tried again later.
    }
    if (!this.isOver) this.timer = this.after(EVERY * (0.5 + Math.random()));
  }

  end(): void {
    this.isOver = true;
    clearTimeout(this.timer);
  }
}
