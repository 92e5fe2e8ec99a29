/** The session that a manager holds. */

import type { Session } from "../core/session/session.ts";

/** Milliseconds without an append after which other programs may write to the file. */
const WRITING = 1000;

/** Closes sessions of managers that nothing refers to any more, because Pi's managers are never closed. */
const forgotten = new FinalizationRegistry<HeldSession>((held) => held.close());

export class HeldSession {
  current: Session;
  private timer: NodeJS.Timeout | undefined;

  /** Holds a session for a manager, which it outlives by the time that the collector takes. */
  constructor(manager: object, session: Session) {
    this.current = session;
    forgotten.register(manager, this);
  }

  replace(session: Session): void {
    this.current.close();
    this.current = session;
  }

  /** Lets other programs write when nothing was appended for a while. */
  lendSoon(): void {
    if (!this.current.log.persisted) return;
    if (this.timer) this.timer.refresh();
    else this.timer = setTimeout(() => this.current.log.unlock(), WRITING).unref();
  }

  close(): void {
    clearTimeout(this.timer);
    this.current.close();
  }
}
