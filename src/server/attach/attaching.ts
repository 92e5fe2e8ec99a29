/** The other side: joins sessions that other processes hold, and takes them over when those are gone. */

import type { Session } from "../../core/session/session.ts";
import { Attachment, type AttachmentOptions } from "./attachment.ts";

/** Milliseconds for which a process that has the lock is waited for until it can be joined. */
const ANNOUNCED_WITHIN = 300;
/** Milliseconds for the same where a dead one is announced: his place is being taken, for which a disk is waited for. */
const SUCCEEDED_WITHIN = 2000;
/** Milliseconds after which a session whose holder cannot be joined is tried again, unless it has another holder. */
const TRY_AGAIN = 5000;

export class Attaching {
  private readonly options: AttachmentOptions;
  private readonly attachments = new Map<Session, Attachment>();
  private readonly joining = new Map<Session, Promise<Attachment | undefined>>();
  /** Holders that could not be joined: their epochs, and when that was. */
  private readonly refused = new WeakMap<Session, { epoch: number | undefined; at: number }>();
  private isClosed = false;

  constructor(options: AttachmentOptions) {
    this.options = options;
  }

  /** Returns the attachment to the holder of a session, if we joined it. */
  of(session: Session | null): Attachment | undefined {
    return session === null || this.attachments.size === 0 ? undefined : this.attachments.get(session);
  }

  /** Joins the session, whose lock another process has. Resolves to undefined where that cannot be; never rejects. */
  join(session: Session): Promise<Attachment | undefined> {
    const known = this.attachments.get(session);
    if (known) return Promise.resolve(known);
    if (this.isRefused(session)) return Promise.resolve(undefined);
    const running = this.joining.get(session);
    if (running) return running;
    const joined = this.connect(session).finally(() => this.joining.delete(session));
    this.joining.set(session, joined);
    return joined;
  }

  private isRefused(session: Session): boolean {
    const refused = this.refused.get(session);
    if (refused === undefined || performance.now() - refused.at >= TRY_AGAIN) return false;
    return refused.epoch === this.epochOf(session);
  }

  private epochOf(session: Session): number | undefined {
    return this.options.find(session)?.announcement.epoch;
  }

  private async connect(session: Session): Promise<Attachment | undefined> {
    const { options } = this;
    const attachment = new Attachment(session, options, () => this.attachments.delete(session));
    const began = performance.now();
    for (let wait = 1; ; wait = Math.min(2 * wait, 50)) {
      const outcome = await attachment.connect();
      if (outcome === "joined" && this.isClosed) {
        attachment.close();
        return undefined;
      }
      if (outcome === "joined") {
        this.attachments.set(session, attachment);
        return attachment;
      }
      const late = began + (outcome === "dead" ? SUCCEEDED_WITHIN : ANNOUNCED_WITHIN);
      if (this.isClosed || outcome === "refused" || session.log.lockedBy === null || performance.now() >= late) break;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
    if (session.log.lockedBy !== null)
      this.refused.set(session, { epoch: this.epochOf(session), at: performance.now() });
    return undefined;
  }

  /** Tells all holders which hooks our host has registered for. */
  hooksChanged(): void {
    for (const attachment of this.attachments.values()) attachment.tellHooks();
  }

  /** Leaves the sessions that are not open any more. */
  sweep(open: readonly Session[]): void {
    for (const [session, attachment] of this.attachments) if (!open.includes(session)) attachment.close();
  }

  close(): void {
    this.isClosed = true;
    this.sweep([]);
  }
}
