/** Sends replies and events: in order, with the session's state when they leave, and once they are durable. */

import { Failure } from "../../core/failure.ts";
import { holdsRaw } from "../../core/json/raw.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import { notifyForeign } from "../../handlers/shared/append.ts";
import type { Call, Outcome } from "../connection/call.ts";
import { makeEvent, type PendingEvent } from "../connection/events.ts";
import { toPeerEvent } from "../connection/peer-events.ts";
import type { CallContexts } from "./call-context.ts";
import { type BatchReply, getReadSource, isReply, type Lane, type ReplySlot, type Slot } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { Prepared, Renewed, Sink } from "./sink.ts";

/** Slots that may wait for the host before events are dropped. */
const MAX_HELD = 10_000;

export class Replies {
  private readonly sink: Sink;
  private readonly contexts: CallContexts;
  private isStarted = false;
  /** The event of the session at start; null for none, undefined while it is not made. */
  private startEvent: PendingEvent | null | undefined;
  /** The failures of reads since a log was opened, or its copy was fetched again. */
  readonly failedReads = new WeakMap<Log, Failure>();
  /** Ids, as JSON text, of calls without a sent reply. */
  readonly awaitedIds = new Set<string>();
  /** Sessions reported as having entries on this machine alone. */
  private readonly local = new WeakSet<Session>();

  constructor(sink: Sink, contexts: CallContexts) {
    this.sink = sink;
    this.contexts = contexts;
  }

  /** Sends the event of the session that was opened at start; nothing but the reply to `initialize` precedes it. */
  start(): void {
    if (this.isStarted) return;
    this.isStarted = true;
    this.noteStart();
    if (this.startEvent) this.sink.event(this.startEvent);
  }

  /** Makes the start event, with the state before the first call changes it. */
  noteStart(again = false): void {
    if (this.startEvent !== undefined && !again) return;
    const { current } = this.lanes.workspace;
    this.startEvent = current && makeEvent(current, "session_start", { reason: "startup", sessionFile: current.file });
  }

  private get lanes(): Lanes {
    return this.contexts.lanes;
  }

  /** Returns whether other processes have joined the session of a lane. */
  private isShared(lane: Lane): boolean {
    const { lanes, sharing } = this.contexts;
    return sharing?.hasGuests(lanes.sessionOf(lane)) === true;
  }

  /** Sends ready output as far as the host reads. Guests do not wait for the host. */
  flush(lane: Lane): void {
    for (;;) {
      const { hasCapacity, canSendEvents } = this.sink;
      // A host that has sent nothing yet cannot receive events; its first message is answered before them.
      const held = hasCapacity && canSendEvents ? lane.held.shift() : undefined;
      if (held) {
        this.deliver(lane, held);
        continue;
      }
      if (!hasCapacity && !this.isShared(lane)) break;
      const slot = lane.shift();
      if (!slot) break;
      this.reportIfLocal(lane, slot);
      const own = this.answerPeers(lane, slot);
      if (own && hasCapacity && (canSendEvents || own.refusal || own.batch)) this.deliver(lane, own);
      else if (own) lane.hold(own, MAX_HELD);
    }
    this.lanes.wake();
  }

  /** Answers the guest that called, and sends all guests the events. Returns the slot for the local host. */
  private answerPeers(lane: Lane, slot: Slot): Slot | undefined {
    const { call, events } = slot;
    const peer = call?.peer;
    if (!peer && !(events.length > 0 && this.isShared(lane))) return slot;
    const session = this.lanes.sessionOf(lane);
    for (const event of events) this.contexts.sharing?.report(session, event, call);
    // It keeps its own events until the reply, which precedes them directly.
    if (peer) peer.reply(call, slot.outcome, events.at(-1));
    if (!peer) return slot;
    if (events.length === 0) return undefined;
    return { outcome: slot.outcome, events: events.map((event) => toPeerEvent(event, peer.client)), after: slot.after };
  }

  private deliver(lane: Lane, slot: Slot): void {
    if (lane.lostEvents > 0) {
      this.sink.lostEvents(lane.lostEvents, this.lanes.sessionOf(lane));
      lane.lostEvents = 0;
    }
    if (slot.batch && isReply(slot)) {
      // One part of a batch is ready; the array leaves at the position of its last part.
      slot.batch.replies.push({ call: slot.call, prepared: this.prepare(lane, slot) });
      slot.batch.events.push(...slot.events);
      slot.batch.waiting--;
      if (slot.batch.waiting === 0) this.sendBatch(slot.batch);
    } else this.send(lane, slot);
  }

  private send(lane: Lane, slot: Slot): void {
    if (slot.refusal) {
      // session_start cannot be sent before the first payload has decided the dialect.
      if (this.sink.canSendEvents) this.start();
      this.sink.refuse(slot.refusal);
    } else if (slot.batch) this.sendBatch(slot.batch);
    else if (!isReply(slot)) {
      this.start();
      for (const event of slot.events) this.sink.event(event);
      this.reportFound(this.lanes.sessionOf(lane));
    } else {
      const { call } = slot;
      const introduces = call.command.introduces;
      if (!introduces) this.start();
      if (call.idText !== undefined) this.awaitedIds.delete(call.idText);
      // The reply ends the turn for pi-acp, which shows earlier notices only.
      if ("error" in slot.outcome && slot.outcome.error instanceof Failure && slot.outcome.error.notice !== undefined)
        this.sink.show(slot.outcome.error.notice);
      if (slot.prepared) this.sink.send(slot.prepared);
      else this.sink.reply(call, this.refresh(lane, slot), this.renewal(lane, slot));
      if (introduces) this.start();
      for (const event of slot.events) this.sink.event(event);
      this.reportDamage(call);
    }
  }

  private sendBatch(batch: BatchReply): void {
    if (batch.sent) return;
    batch.sent = true;
    const introduces = batch.replies.some(({ call }) => call.command.introduces);
    if (!introduces && (batch.replies.length > 0 || this.sink.canSendEvents)) this.start();
    for (const { call } of batch.replies) if (call.idText !== undefined) this.awaitedIds.delete(call.idText);
    const prepared = batch.replies.map((reply) => reply.prepared);
    this.sink.batch(prepared, batch.refusals);
    if (introduces) this.start();
    for (const event of batch.events) this.sink.event(event);
    for (const { call } of batch.replies) this.reportDamage(call);
  }

  // --- contents of replies ------------------------------------------------------------------------------------

  /** Makes the waiting replies, because they refer to bytes of the session that is about to be closed. */
  prepareAll(lane: Lane): void {
    for (const slot of [...lane.held, ...lane.slots]) if (isReply(slot)) this.prepare(lane, slot);
  }

  private prepare(lane: Lane, slot: ReplySlot): Prepared {
    if (slot.prepared) return slot.prepared;
    this.reportIfLocal(lane, slot);
    const outcome = this.refresh(lane, slot);
    slot.prepared = this.sink.prepare(slot.call, outcome, slot.batch?.size ?? 0, this.renewal(lane, slot));
    if (slot.batch) slot.batch.size += slot.prepared.size + 1;
    return slot.prepared;
  }

  /** Reports that a change is on this machine alone, if the fleet of its session is unreachable. */
  private reportIfLocal(lane: Lane, slot: Slot): void {
    const { call, outcome, prepared, events } = slot;
    if (prepared || this.lanes.sessionOf(lane)?.log.replica?.status.durability !== "local") return;
    const isChange = call?.command.effect === "write" || call?.command.effect === "replace";
    if (isChange && "result" in outcome && outcome.result !== null && typeof outcome.result === "object")
      slot.outcome = { result: { ...outcome.result, durability: "local" } };
    slot.events = events.map((event) =>
      event.name === "session_append" && event.payload.origin !== "foreign"
        ? { ...event, payload: { ...event.payload, durability: "local" } }
        : event,
    );
  }

  /** Returns the outcome that is true now. */
  private refresh(lane: Lane, slot: ReplySlot): Outcome {
    return this.renewed(lane, slot) ?? slot.outcome;
  }

  /**
   * Runs a read again if its result is not true any more: it contains positions in a log that was replaced since, or an
   * entry found to be unreadable. Returns undefined if the result is true.
   */
  private renewed(lane: Lane, slot: ReplySlot): Outcome | undefined {
    const { readFrom, outcome } = slot;
    if (!readFrom || "error" in outcome) return undefined;
    const { log } = readFrom.session;
    const isReplaced = log !== readFrom.log && holdsRaw(outcome.result);
    if (!isReplaced && readFrom.log.nodes.losses === readFrom.losses) return undefined;
    slot.readFrom = getReadSource(readFrom.session);
    slot.outcome = this.again(lane, slot);
    return slot.outcome;
  }

  /** Returns the renewal of a reply, if making the reply reads entries; only that can show a result to be wrong. */
  private renewal(lane: Lane, slot: ReplySlot): Renewed | undefined {
    const { readFrom, outcome } = slot;
    if (!readFrom || "error" in outcome || !holdsRaw(outcome.result)) return undefined;
    return (error) => {
      if (error !== undefined) this.noteFailedRead(readFrom.session, error);
      return this.renewed(lane, slot);
    };
  }

  noteFailedRead(session: Session | null, error: unknown): void {
    if (session && error instanceof Failure) this.failedReads.set(session.log, error);
  }

  /** Runs the read of a slot again. */
  again(lane: Lane, slot: ReplySlot): Outcome {
    // Its session may have been closed or replaced since it was run.
    const call = this.lanes.resolved(slot.call);
    try {
      const result = call.command.run(this.contexts.make(lane, call), call.params as never);
      if (!(result instanceof Promise)) return this.shaped(call, { result });
      // It read files rather than the session, and its result is still true for them.
      result.catch(() => {});
      return slot.outcome;
    } catch (error) {
      return { error };
    }
  }

  /** Returns the outcome in the form of the host's dialect. */
  shaped(call: Call, outcome: Outcome): Outcome {
    const { pi } = call.command;
    if (call.peer || !pi || "error" in outcome || this.sink.dialectName !== "pi") return outcome;
    try {
      return { result: pi(this.contexts.make(this.lanes.main, call), outcome.result as never) };
    } catch (error) {
      return { error };
    }
  }

  // --- found damage and changes ------------------------------------------------------------------------------

  /** Reports damage after a reply: making replies reads stored entries, and finds it. */
  private reportDamage(call: Call): void {
    const { sessionId } = (call.params ?? {}) as { sessionId?: string };
    const { workspace } = this.lanes;
    const named = sessionId === undefined ? undefined : workspace.openWith(sessionId);
    this.reportFound(named ?? workspace.current);
  }

  /**
   * Reports damage, whether acknowledged entries are on this machine alone, and foreign changes that a failed call
   * found and could not report itself.
   */
  reportFound(session: Session | null): void {
    if (!session) return;
    this.reportDurability(session);
    try {
      const fresh = session.externalChanges.fresh();
      if (fresh)
        notifyForeign(session, fresh, (name, payload) => this.announce(session, makeEvent(session, name, payload)));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // The tree cannot be read for now; the next reply tries again.
    }
    const damage = session.externalChanges.freshDamage();
    if (damage.length > 0) this.announce(session, makeEvent(session, "session_damage", { damage }));
  }

  private reportDurability(session: Session): void {
    const { durability } = session.log.replica?.status ?? {};
    const isLocal = durability === "local";
    if (durability === undefined || isLocal === this.local.has(session)) return;
    if (isLocal) this.local.add(session);
    else this.local.delete(session);
    this.announce(session, makeEvent(session, "session_durability_changed", { durability }));
  }

  private announce(session: Session, event: PendingEvent): void {
    this.sink.event(event);
    this.contexts.sharing?.report(session, event, undefined);
  }
}
