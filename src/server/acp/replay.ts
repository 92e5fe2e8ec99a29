/** Brings a client to the end of a session's path: what it has not been shown is sent, no faster than it reads. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { Failure } from "../../core/failure.ts";
import type { Acquaintance } from "./agent.ts";
import type { Asker } from "./asker.ts";
import { type Attached, requireGoing, type Telltale } from "./attached.ts";
import { look, type Page, readPage, readUsage, type SessionOutline } from "./commands.ts";
import { type AcpUpdate, type ClientSkills, Narrator, OURS, type PathEntry, withOurs } from "./narrator.ts";

const REPLACED = "The session was changed by another program while it was read. Load it again.";

/** The way to the client. */
export interface Stage {
  readonly asker: Asker;
  readonly skills: ClientSkills;
  /** Whether an agent tells itself how full its context is. */
  readonly isUsageTold: boolean;
  /** Returns how the client stands to entries of a session; undefined where it is shown all of them. */
  judgeOf(sessionId: string): ((item: PathEntry) => Acquaintance) | undefined;
  /** Sends an update once there is room for it. */
  update(sessionId: string, update: AcpUpdate, isStopped: () => boolean): Promise<void>;
}

/** The result of a replay. */
export interface Replayed {
  readonly facts: SessionOutline;
  /** The entry that the first one that was sent follows; null for the beginning. */
  readonly after: string | null;
  readonly entries: number;
}

/** Shows the path of a session, from its beginning or from what follows an entry that the client has. */
export async function replay(
  stage: Stage,
  session: Attached,
  since: string | undefined,
  isStopped: () => boolean,
): Promise<Replayed> {
  const now = await stage.asker.run(look, { sessionId: session.id, since: since ?? null });
  const { facts } = now;
  const told: Telltale = {
    lastId: since ?? null,
    narrator: since === undefined ? narratorOf(stage, facts) : undefined,
  };
  const { after, entries } = await goOn({ stage, session, told, isStopped, ...now, tellsWhere: since !== undefined });
  requireGoing(isStopped);
  const narrator = told.narrator as Narrator;
  for (const update of narrator.rest(facts.isElsewhere || session.isInTurn))
    await stage.update(session.id, update, isStopped);
  await stage.update(session.id, infoOf(facts), isStopped);
  await tellUsage(stage, session, told, isStopped);
  session.told = told;
  return { facts, after, entries };
}

/** Shows what has come to a session since, as far as `judge` says that it is to be shown. */
export async function catchUp(
  stage: Stage,
  session: Attached,
  isStopped: () => boolean,
  judge = stage.judgeOf(session.id),
  tellsUsage = true,
): Promise<Replayed | undefined> {
  const { told } = session;
  if (!told) return undefined;
  const now = await stage.asker.run(look, { sessionId: session.id, since: told.lastId });
  const { facts } = now;
  const { after, entries } = await goOn({ stage, session, told, isStopped, ...now, tellsWhere: false, judge });
  const { narrator } = told;
  if (narrator && entries > 0) {
    for (const update of narrator.rest(true)) await stage.update(session.id, update, isStopped);
    told.owesUsage = true;
  }
  if (told.owesUsage && tellsUsage) await tellUsage(stage, session, told, isStopped);
  return { facts, after, entries };
}

interface GoingOn {
  readonly stage: Stage;
  readonly session: Attached;
  readonly told: Telltale;
  readonly isStopped: () => boolean;
  readonly facts: SessionOutline;
  /** The page after the last entry that was told of. */
  readonly first: Page;
  /** Whether the client is told in any case which entry the first one follows. */
  readonly tellsWhere: boolean;
  /** Says how the client stands to an entry; it is shown all of them by default. */
  readonly judge?: (item: PathEntry) => Acquaintance;
}

/**
 * Makes sure that it is known which calls the client was told of, before it is told of others. Returns what the session
 * is like, unless the client has closed it.
 */
export async function makeReady(
  stage: Stage,
  session: Attached,
  isStopped: () => boolean,
): Promise<SessionOutline | undefined> {
  const { facts } = (await catchUp(stage, session, isStopped, undefined, false)) ?? {};
  const { told } = session;
  told?.narrator?.forgetClaims();
  if (!facts || !told || told.narrator) return facts;
  const narrator = narratorOf(stage, facts);
  const first = await pageAfter(stage, session, told.lastId);
  const going = { stage, session, told, isStopped, facts, first, tellsWhere: false };
  if (told.lastId !== null) await walkThrough(going, narrator, first);
  told.narrator = narrator;
  return facts;
}

/** Sends what follows the last entry that was told of, or the place where the path has left that. */
async function goOn(going: GoingOn): Promise<{ after: string | null; entries: number }> {
  const { stage, session, told, isStopped, facts, first, tellsWhere } = going;
  const { after } = first;
  const hasParted = after !== told.lastId;
  if (!hasParted && first.entries.length === 0 && !tellsWhere) return { after, entries: 0 };
  if (hasParted || !told.narrator) {
    // Which calls are open there, and which ids are used, only the way to it tells.
    const narrator = narratorOf(stage, facts);
    if (after !== null) await walkThrough(going, narrator, first);
    told.narrator = narrator;
    told.lastId = after;
  }
  if (hasParted || tellsWhere) {
    const where = { after, leafId: first.walk.leafId };
    await stage.update(session.id, withOurs({ sessionUpdate: "session_info_update" }, where), isStopped);
  }
  let entries = 0;
  for await (const item of entriesFrom(going, first, after)) {
    const narrator = told.narrator as Narrator;
    const known = going.judge?.(item) ?? "new";
    if (known === "soon") break;
    const updates = known === "shown" ? narrator.factsAbout(item) : narrator.updatesOf(item);
    for (const update of updates) await stage.update(session.id, update, isStopped);
    told.lastId = item.id;
    entries++;
  }
  return { after, entries };
}

/** Lets a narrator hear everything up to the entry that a page follows. */
async function walkThrough(going: GoingOn, narrator: Narrator, { after, walk }: Page): Promise<void> {
  const first = await pageAfter(going.stage, going.session, null, walk);
  for await (const item of entriesFrom(going, first, null)) {
    for (const _ of narrator.updatesOf(item));
    if (item.id === after) return;
  }
}

/** Yields the entries of a page and of those after it. */
async function* entriesFrom({ stage, session, isStopped }: GoingOn, first: Page, after: string | null) {
  let page = first;
  let last = after;
  for (;;) {
    for (const item of page.entries) {
      requireGoing(isStopped);
      yield item;
      last = item.id;
    }
    if (!page.isMore) return;
    // A long path would keep the process from reading what the client says meanwhile.
    await nextTurn();
    page = await pageAfter(stage, session, last, page.walk);
    if (page.after !== last) throw new Failure("content_modified", REPLACED);
  }
}

function pageAfter({ asker }: Stage, { id }: Attached, since: string | null, walk?: Page["walk"]): Promise<Page> {
  return asker.run(readPage, { sessionId: id, since, walk });
}

function narratorOf({ skills }: Stage, { cwd }: SessionOutline): Narrator {
  return new Narrator(cwd, skills);
}

/** Returns the update about what a client shows beside the messages. */
function infoOf({ name, model, thinkingLevel, leafId }: SessionOutline): AcpUpdate {
  const title = name === null ? {} : { title: name };
  return { sessionUpdate: "session_info_update", ...title, _meta: { [OURS]: { leafId, model, thinkingLevel } } };
}

/** Tells how full the model's context is, where that is known, and what the path has cost. */
async function tellUsage(stage: Stage, session: Attached, told: Telltale, isStopped: () => boolean): Promise<void> {
  told.owesUsage = false;
  if (stage.isUsageTold) return;
  const { usage } = await stage.asker.run(readUsage, { sessionId: session.id });
  if (!usage || usage.tokens === null) return;
  const { cost = 0 } = told.narrator ?? {};
  const spent = cost > 0 ? { cost: { amount: cost, currency: "USD" } } : {};
  const update = { sessionUpdate: "usage_update", used: Math.round(usage.tokens), size: usage.contextWindow, ...spent };
  await stage.update(session.id, update, isStopped);
}
