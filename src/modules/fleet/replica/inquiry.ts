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
