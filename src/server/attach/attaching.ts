/** The other side: joins sessions that other processes hold, and takes them over when those are gone. */

import type { Session } from "../../core/session/session.ts";
import { Attachment, type AttachmentOptions } from "./attachment.ts";

/** Milliseconds for which a process that has the lock is waited for until it can be joined. */
const ANNOUNCED_WITHIN = 300;
/**
 * Milliseconds for the same where a dead one is announced, or where the lock was taken within this time: a place is being
 * taken, or a session being made, for which a disk is waited for.
 */
const SUCCEEDED_WITHIN = 2000;
/** Milliseconds after which a session whose holder refuses us is tried again, unless it has another holder. */
const REFUSED_FOR = 5000;
/** Milliseconds for the same where the holder said nothing, or is not announced: it may have been stopped for a while. */
const SILENT_FOR = 1000;

/** Milliseconds for which holders are waited for once this process was told to end: it has two seconds. */
const ANSWERS_AT_END = 1000;
/** Milliseconds after joining a session at which its lock is prepared for: what was asked then is on its way. */
const PREPARES_AFTER = 5;

export class Attaching {
  private readonly options: AttachmentOptions;
  private readonly attachments = new Map<Session, Attachment>();
  private readonly joining = new Map<Session, Promise<Attachment | undefined>>();
  /** Holders that could not be joined: their epochs, until when that counts, and whether a call had asked for it. */
  private readonly refused = new WeakMap<Session, { epoch: number | undefined; until: number; isAsked: boolean }>();
  private isClosed = false;
  /** Whether this process was told to end: nobody is joined any more. */
  private isHurried = false;

  constructor(options: AttachmentOptions) {
    this.options = options;
  }

  /** Returns the attachment to the holder of a session, if we joined it. */
  of(session: Session | null): Attachment | undefined {
    return session === null || this.attachments.size === 0 ? undefined : this.attachments.get(session);
  }

  /**
   * Joins the session, whose lock another process has. Resolves to undefined where that cannot be; never rejects. A call
   * that needs it (`isAsked`) does not fail because a holder was not found when nobody asked: that may have been dying.
   */
  join(session: Session, isAsked = true): Promise<Attachment | undefined> {
    const known = this.attachments.get(session);
    if (known) return Promise.resolve(known);
    const running = this.joining.get(session);
    if (running) return isAsked ? running.then((attachment) => attachment ?? this.join(session)) : running;
    if (this.isHurried || this.isRefused(session, isAsked)) return Promise.resolve(undefined);
    const joined = this.connect(session, isAsked).finally(() => this.joining.delete(session));
    this.joining.set(session, joined);
    return joined;
  }

  private isRefused(session: Session, isAsked: boolean): boolean {
    const refused = this.refused.get(session);
    if (refused === undefined || performance.now() >= refused.until) return false;
    return (refused.isAsked || !isAsked) && refused.epoch === this.epochOf(session);
  }

  private epochOf(session: Session): number | undefined {
    return this.options.find(session)?.announcement.epoch;
  }

  private async connect(session: Session, isAsked: boolean): Promise<Attachment | undefined> {
    const { options } = this;
    const attachment = new Attachment(session, options, (isGivenUp) => {
      this.attachments.delete(session);
      if (isGivenUp) this.refuse(session, REFUSED_FOR, false);
    });
    const began = performance.now();
    let outcome: Awaited<ReturnType<Attachment["connect"]>>;
    for (let wait = 1; ; wait = Math.min(2 * wait, 50)) {
      outcome = await attachment.connect();
      if (outcome === "joined" && this.isClosed) {
        attachment.close();
        return undefined;
      }
      if (outcome === "joined") {
        this.attachments.set(session, attachment);
        // The holder may die at any time, and its place is taken at once.
        setTimeout(() => session.log.prepareLock?.(), PREPARES_AFTER).unref();
        return attachment;
      }
      const isComing = outcome === "dead" || this.isNew(session);
      const late = began + (isComing ? SUCCEEDED_WITHIN : ANNOUNCED_WITHIN);
      if (
        this.isClosed ||
        this.isHurried ||
        outcome === "refused" ||
        session.log.lockedBy === null ||
        performance.now() >= late
      )
        break;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
    if (session.log.lockedBy !== null)
      this.refuse(session, outcome === "refused" ? REFUSED_FOR : SILENT_FOR, isAsked || outcome === "refused");
    return undefined;
  }

  private refuse(session: Session, time: number, isAsked: boolean): void {
    this.refused.set(session, { epoch: this.epochOf(session), until: performance.now() + time, isAsked });
  }

  /** Whether the lock was taken just now. */
  private isNew({ log: { lockedBy } }: Session): boolean {
    const age = this.options.now() - Date.parse(lockedBy?.since ?? "");
    return age >= 0 && age < SUCCEEDED_WITHIN;
  }

  /** Tells all holders who our host is and which hooks it has registered for. */
  introduce(): void {
    for (const attachment of this.attachments.values()) attachment.introduce();
  }

  /** Leaves the sessions that are not open any more, and tells the holders of the others where our host stands. */
  sweep(isOpen: (session: Session) => boolean): void {
    for (const [session, attachment] of this.attachments)
      if (!isOpen(session)) attachment.close();
      else attachment.tellHead();
  }

  /** Ends soon what waits for holders, which may have been stopped: this process will not be there for their answers. */
  hurry(): void {
    this.isHurried = true;
    const late = (): void => {
      for (const attachment of this.attachments.values())
        attachment.failAll("This server was told to end, and waits no longer.");
    };
    setTimeout(late, ANSWERS_AT_END).unref();
  }

  close(): void {
    this.isClosed = true;
    this.sweep(() => false);
  }
}
