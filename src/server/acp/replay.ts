/** Brings a client to the end of a session's path: what it has not been shown is sent, no faster than it reads. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { Failure } from "../../core/failure.ts";
import type { EntryVisibility } from "./agent.ts";
import { type ClientPosition, type ClientSession, requireNotStopped } from "./client-session.ts";
import type { CommandRunner } from "./command-runner.ts";
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

/** The way to the client. */
export interface ReplayContext {
  readonly runner: CommandRunner;
  readonly features: ClientFeatures;
  /** Whether an agent tells itself how full its context is. */
  readonly agentReportsUsage: boolean;
  /** Returns how the client stands to entries of a session; undefined where it is shown all of them. */
  findClassifier(sessionId: string): ((item: PathEntry) => EntryVisibility) | undefined;
  /** Sends an update once there is room for it. */
  update(sessionId: string, update: AcpUpdate, isStopped: () => boolean): Promise<void>;
}

/** The result of a replay. */
export interface ReplayResult {
  readonly facts: SessionOutline;
  /** The entry that the first one that was sent follows; null for the beginning. */
  readonly after: string | null;
  readonly entries: number;
}

/** Shows the path of a session, from its beginning or from what follows an entry that the client has. */
export async function replay(
  context: ReplayContext,
  session: ClientSession,
  since: string | undefined,
  isStopped: () => boolean,
): Promise<ReplayResult> {
  const now = await context.runner.run(readOutlineAndPage, { sessionId: session.id, since: since ?? null });
  const { facts } = now;
  const position: ClientPosition = {
    lastId: since ?? null,
    mapper: since === undefined ? makeMapper(context, facts) : undefined,
  };
  const { after, entries } = await sendEntries({
    context,
    session,
    position,
    isStopped,
    ...now,
    sendsPosition: since !== undefined,
  });
  requireNotStopped(isStopped);
  const mapper = position.mapper as UpdateMapper;
  for (const update of mapper.flush(facts.isElsewhere || session.isInTurn))
    await context.update(session.id, update, isStopped);
  await context.update(session.id, makeInfoUpdate(facts), isStopped);
  await sendUsage(context, session, position, isStopped);
  session.position = position;
  return { facts, after, entries };
}

/** Shows what has come to a session since, as far as `judge` says that it is to be shown. */
export async function sendNewEntries(
  context: ReplayContext,
  session: ClientSession,
  isStopped: () => boolean,
  classify = context.findClassifier(session.id),
  withUsage = true,
): Promise<ReplayResult | undefined> {
  const { position } = session;
  if (!position) return undefined;
  const now = await context.runner.run(readOutlineAndPage, { sessionId: session.id, since: position.lastId });
  const { facts } = now;
  const { after, entries } = await sendEntries({
    context,
    session,
    position,
    isStopped,
    ...now,
    sendsPosition: false,
    classify,
  });
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
  /** The page after the last entry that was told of. */
  readonly first: EntryPage;
  /** Whether the client is told in any case which entry the first one follows. */
  readonly sendsPosition: boolean;
  /** Says how the client stands to an entry; it is shown all of them by default. */
  readonly classify?: (item: PathEntry) => EntryVisibility;
}

/**
 * Makes sure that it is known which calls the client was told of, before it is told of others. Returns what the session
 * is like, unless the client has closed it.
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
  const first = await readNextPage(context, session, position.lastId);
  const sending = { context, session, position, isStopped, facts, first, sendsPosition: false };
  if (position.lastId !== null) await mapSilently(sending, mapper, first);
  position.mapper = mapper;
  return facts;
}

/** Sends what follows the last entry that was told of, or the place where the path has left that. */
async function sendEntries(sending: EntrySending): Promise<{ after: string | null; entries: number }> {
  const { context, session, position, isStopped, facts, first, sendsPosition } = sending;
  const { after } = first;
  const hasParted = after !== position.lastId;
  if (!hasParted && first.entries.length === 0 && !sendsPosition) return { after, entries: 0 };
  if (hasParted || !position.mapper) {
    // Which calls are open there, and which ids are used, only the way to it tells.
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

/** Lets a narrator hear everything up to the entry that a page follows. */
async function mapSilently(sending: EntrySending, mapper: UpdateMapper, { after, walk }: EntryPage): Promise<void> {
  const first = await readNextPage(sending.context, sending.session, null, walk);
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
    // A long path would keep the process from reading what the client says meanwhile.
    await nextTurn();
    page = await readNextPage(context, session, last, page.walk);
    if (page.after !== last) throw new Failure("content_modified", REPLACED);
  }
}

function readNextPage(
  { runner }: ReplayContext,
  { id }: ClientSession,
  since: string | null,
  walk?: EntryPage["walk"],
): Promise<EntryPage> {
  return runner.run(readPage, { sessionId: id, since, walk });
}

function makeMapper({ features }: ReplayContext, { cwd }: SessionOutline): UpdateMapper {
  return new UpdateMapper(cwd, features);
}

/** Returns the update about what a client shows beside the messages. */
function makeInfoUpdate({ name, model, thinkingLevel, leafId }: SessionOutline): AcpUpdate {
  const title = name === null ? {} : { title: name };
  return { sessionUpdate: "session_info_update", ...title, _meta: { [SERVER_NAME]: { leafId, model, thinkingLevel } } };
}

/** Tells how full the model's context is, where that is known, and what the path has cost. */
async function sendUsage(
  context: ReplayContext,
  session: ClientSession,
  position: ClientPosition,
  isStopped: () => boolean,
): Promise<void> {
  position.isUsagePending = false;
  if (context.agentReportsUsage) return;
  const { usage } = await context.runner.run(readContextUsage, { sessionId: session.id });
  if (!usage || usage.tokens === null) return;
  const { cost = 0 } = position.mapper ?? {};
  const spent = cost > 0 ? { cost: { amount: cost, currency: "USD" } } : {};
  const update = { sessionUpdate: "usage_update", used: Math.round(usage.tokens), size: usage.contextWindow, ...spent };
  await context.update(session.id, update, isStopped);
}
