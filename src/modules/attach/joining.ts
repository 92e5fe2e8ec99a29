/** Joins sessions that other processes hold, and takes them over when the holder is gone. */

import type { Session } from "../../core/session/session.ts";
import { Attachment, type AttachmentOptions, findHolder } from "./attachment.ts";

/** Milliseconds to wait until a process that has the lock can be joined. */
const ANNOUNCED_WITHIN = 300;
/**
 * The same, in milliseconds, if a dead holder is announced or the lock was taken within this time: a takeover or the
 * making of a session may be waiting for a disk.
 */
const SUCCEEDED_WITHIN = 2000;
/** Milliseconds before a session is tried again whose holder refused this process, unless the holder changed. */
const REFUSED_FOR = 5000;
/** The same, in milliseconds, if the holder did not answer or is not announced: it may be stopped for a while. */
const SILENT_FOR = 1000;

/** Milliseconds to wait for holders after this process was asked to end; it has two seconds. */
const ANSWERS_AT_END = 1000;
/** Milliseconds from joining a session to preparing its lock: the first calls are sent before. */
const PREPARES_AFTER = 5;

export class Attaching {
  private readonly options: AttachmentOptions;
  private readonly attachments = new Map<Session, Attachment>();
  private readonly joining = new Map<Session, Promise<Attachment | undefined>>();
  /** Holders that could not be joined: epoch, end of the refusal, and whether a call needed the session. */
  private readonly refused = new WeakMap<Session, { epoch: number | undefined; until: number; isAsked: boolean }>();
  private isClosed = false;
  /** True if this process was asked to end: it joins no more sessions. */
  private isHurried = false;

  constructor(options: AttachmentOptions) {
    this.options = options;
  }

  /** Returns the attachment to the holder of a session, if this process joined it. */
  of(session: Session | null): Attachment | undefined {
    return session === null || this.attachments.size === 0 ? undefined : this.attachments.get(session);
  }

  /**
   * Joins a session whose lock another process has. Resolves to undefined if that fails; never rejects. A call that
   * needs the session (`isAsked`) tries again after an attempt without one: the holder may have been exiting then.
   * A session that is only read is not joined: its holder would run the writes of this process.
   */
  join(session: Session, isAsked = true): Promise<Attachment | undefined> {
    if (session.log.readOnly?.name === "read_only") return Promise.resolve(undefined);
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
    return findHolder(this.options, session)?.announcement.epoch;
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
        // The holder may die at any time, and the lock is taken at once then.
        setTimeout(() => session.log.lock.prepare(), PREPARES_AFTER).unref();
        return attachment;
      }
      const isComing = outcome === "dead" || this.isNew(session);
      const late = began + (isComing ? SUCCEEDED_WITHIN : ANNOUNCED_WITHIN);
      if (
        this.isClosed ||
        this.isHurried ||
        outcome === "refused" ||
        session.log.lock.holder === null ||
        performance.now() >= late
      )
        break;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
    if (session.log.lock.holder !== null)
      this.refuse(session, outcome === "refused" ? REFUSED_FOR : SILENT_FOR, isAsked || outcome === "refused");
    return undefined;
  }

  private refuse(session: Session, time: number, isAsked: boolean): void {
    this.refused.set(session, { epoch: this.epochOf(session), until: performance.now() + time, isAsked });
  }

  /** Returns whether the lock was taken just now. */
  private isNew({ log: { lock } }: Session): boolean {
    const age = this.options.server.workspace.env.now() - Date.parse(lock.holder?.since ?? "");
    return age >= 0 && age < SUCCEEDED_WITHIN;
  }

  /** Sends every holder the local host's name and its registered hooks. */
  introduce(): void {
    for (const attachment of this.attachments.values()) attachment.introduce();
  }

  /** Leaves sessions that are closed, and sends the other holders the local host's head. */
  sweep(isOpen: (session: Session) => boolean): void {
    for (const [session, attachment] of this.attachments)
      if (!isOpen(session)) attachment.close();
      else attachment.sendHead();
  }

  /** Fails waiting calls soon: holders may be stopped, and this process ends before they answer. */
  hurry(): void {
    this.isHurried = true;
    const late = (): void => {
      for (const attachment of this.attachments.values())
        attachment.failAll("This server is ending, and waits no longer.");
    };
    setTimeout(late, ANSWERS_AT_END).unref();
  }

  close(): void {
    this.isClosed = true;
    this.sweep(() => false);
  }
}
