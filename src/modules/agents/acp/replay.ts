/** Brings a client to the end of a session's path: sends the entries that it does not have, no faster than it reads. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { Failure } from "../../../core/failure.ts";
import type { Dispatcher } from "../../../server/dispatch/dispatcher.ts";
import type { AgentBackend, EntryVisibility } from "./agent.ts";
import { type ClientPosition, type ClientSession, requireNotStopped } from "./client-session.ts";
import { type EntryPage, readContextUsage, readOutlineAndPage, readPage, type SessionOutline } from "./commands.ts";
import {
  type AcpUpdate,
  addMeta,
  type ClientFeatures,
  type PathEntry,
  SERVER_NAME,
  UpdateMapper,
} from "./update-mapper.ts";

const REPLACED = "The session was changed by another program while it was read. Load it again.";

/** The client and the server, for a replay. */
export interface ReplayContext {
  readonly dispatcher: Dispatcher;
  readonly features: ClientFeatures;
  readonly facts: { readonly agent: AgentBackend | undefined };
  /** Sends an update once there is capacity. */
  update(sessionId: string, update: AcpUpdate, isStopped: () => boolean, meta?: unknown): Promise<void>;
}

/** The result of a replay. */
export interface ReplayResult {
  readonly facts: SessionOutline;
  /** The entry before the first one sent; null at the beginning. */
  readonly after: string | null;
  readonly entries: number;
}

/** Sends the path of a session, from its beginning or after an entry that the client has. */
export async function replay(
  context: ReplayContext,
  session: ClientSession,
  since: string | undefined,
  isStopped: () => boolean,
): Promise<ReplayResult> {
  const now = await readOutlineAndPage(context.dispatcher, session.id, since ?? null);
  const { facts } = now;
  const fromStart = since === undefined ? makeMapper(context, facts) : undefined;
  const position: ClientPosition = { lastId: since ?? null, mapper: fromStart };
  const sending = { context, session, position, isStopped, ...now, sendsPosition: since !== undefined };
  const { after, entries } = await sendEntries(sending);
  requireNotStopped(isStopped);
  const mapper = position.mapper as UpdateMapper;
  const rest = [...mapper.flush(facts.isElsewhere || session.isInTurn)];
  const unwritten = context.facts.agent?.listUnwritten?.(session.id) ?? [];
  for (const update of [...rest, ...(unwritten as AcpUpdate[])]) await context.update(session.id, update, isStopped);
  await context.update(session.id, makeInfoUpdate(facts, mapper.firstSaid), isStopped);
  await sendUsage(context, session, position, isStopped);
  session.position = position;
  return { facts, after, entries };
}

/** Sends the new entries of a session that `classify` does not hold back. */
export async function sendNewEntries(
  context: ReplayContext,
  session: ClientSession,
  isStopped: () => boolean,
  classify = context.facts.agent?.findClassifier?.(session.id),
  withUsage = true,
): Promise<ReplayResult | undefined> {
  const { position } = session;
  if (!position) return undefined;
  const now = await readOutlineAndPage(context.dispatcher, session.id, position.lastId);
  const { facts } = now;
  const sending = { context, session, position, isStopped, ...now, sendsPosition: false, classify };
  const { after, entries } = await sendEntries(sending);
  const { mapper } = position;
  if (mapper && entries > 0) {
    for (const update of mapper.flush(true)) await context.update(session.id, update, isStopped);
    position.isUsagePending = true;
  }
  if (position.isUsagePending && withUsage) await sendUsage(context, session, position, isStopped);
  return { facts, after, entries };
}

interface EntrySending {
  readonly context: ReplayContext;
  readonly session: ClientSession;
  readonly position: ClientPosition;
  readonly isStopped: () => boolean;
  readonly facts: SessionOutline;
  /** The page after the last entry sent. */
  readonly first: EntryPage;
  /** True if the client is sent the position of the first entry in any case. */
  readonly sendsPosition: boolean;
  /** By default all entries are new to the client. */
  readonly classify?: (item: PathEntry) => EntryVisibility;
}

/**
 * Brings the client's mapper up to date before a turn, so that it knows all calls sent so far. Returns the outline of
 * the session; undefined when the client has closed it.
 */
export async function prepareTurn(
  context: ReplayContext,
  session: ClientSession,
  isStopped: () => boolean,
): Promise<SessionOutline | undefined> {
  const { facts } = (await sendNewEntries(context, session, isStopped, undefined, false)) ?? {};
  const { position } = session;
  position?.mapper?.forgetClaims();
  if (!facts || !position || position.mapper) return facts;
  const mapper = makeMapper(context, facts);
  const first = await readPage(context.dispatcher, session.id, position.lastId);
  const sending = { context, session, position, isStopped, facts, first, sendsPosition: false };
  if (position.lastId !== null) await mapSilently(sending, mapper, first);
  position.mapper = mapper;
  return facts;
}

/** Sends the entries after the last one sent, or after the fork where the path has left it. */
async function sendEntries(sending: EntrySending): Promise<{ after: string | null; entries: number }> {
  const { context, session, position, isStopped, facts, first, sendsPosition } = sending;
  const { after } = first;
  const hasParted = after !== position.lastId;
  if (!hasParted && first.entries.length === 0 && !sendsPosition) return { after, entries: 0 };
  if (hasParted || !position.mapper) {
    // Only the path to the fork determines the open calls and the used ids.
    const mapper = makeMapper(context, facts);
    if (after !== null) await mapSilently(sending, mapper, first);
    position.mapper = mapper;
    position.lastId = after;
  }
  if (hasParted || sendsPosition) {
    const where = { after, leafId: first.walk.leafId };
    await context.update(session.id, addMeta({ sessionUpdate: "session_info_update" }, where), isStopped);
  }
  let entries = 0;
  for await (const item of readEntriesFrom(sending, first, after)) {
    const mapper = position.mapper as UpdateMapper;
    const known = sending.classify?.(item) ?? "new";
    if (known === "soon") break;
    const updates = known === "shown" ? mapper.mapShownEntry(item) : mapper.mapEntry(item);
    for (const update of updates) await context.update(session.id, update, isStopped);
    position.lastId = item.id;
    entries++;
  }
  return { after, entries };
}

/** Maps all entries up to the one before a page, without sending them. */
async function mapSilently(sending: EntrySending, mapper: UpdateMapper, { after, walk }: EntryPage): Promise<void> {
  const first = await readPage(sending.context.dispatcher, sending.session.id, null, walk);
  for await (const item of readEntriesFrom(sending, first, null)) {
    for (const _ of mapper.mapEntry(item));
    if (item.id === after) return;
  }
}

/** Yields the entries of a page and of those after it. */
async function* readEntriesFrom({ context, session, isStopped }: EntrySending, first: EntryPage, after: string | null) {
  let page = first;
  let last = after;
  for (;;) {
    for (const item of page.entries) {
      requireNotStopped(isStopped);
      yield item;
      last = item.id;
    }
    if (!page.isMore) return;
    // A long path would keep the process from reading the client's input.
    await nextTurn();
    page = await readPage(context.dispatcher, session.id, last, page.walk);
    if (page.after !== last) throw new Failure("content_modified", REPLACED);
  }
}

function makeMapper({ features }: ReplayContext, { cwd }: SessionOutline): UpdateMapper {
  return new UpdateMapper(cwd, features);
}

/** Returns the update about the session itself: title, leaf, model, thinking level. */
function makeInfoUpdate({ name, model, thinkingLevel, leafId }: SessionOutline, firstSaid: string): AcpUpdate {
  const words = name ?? firstSaid;
  const title = words === "" ? {} : { title: words };
  return { sessionUpdate: "session_info_update", ...title, _meta: { [SERVER_NAME]: { leafId, model, thinkingLevel } } };
}

/** Sends how full the model's context is, if known, and the cost of the path. */
async function sendUsage(
  context: ReplayContext,
  session: ClientSession,
  position: ClientPosition,
  isStopped: () => boolean,
): Promise<void> {
  position.isUsagePending = false;
  if (context.facts.agent?.reportsUsage || position.mapper?.hasUsage) return;
  const usage = await readContextUsage(context.dispatcher, session.id);
  if (!usage || usage.tokens === null) return;
  const { cost = 0 } = position.mapper ?? {};
  const spent = cost > 0 ? { cost: { amount: cost, currency: "USD" } } : {};
  const update = { sessionUpdate: "usage_update", used: Math.round(usage.tokens), size: usage.contextWindow, ...spent };
  await context.update(session.id, update, isStopped);
}
