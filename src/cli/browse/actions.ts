/** Carries out the effects of `browse` by commands of the server. */

import { basename, extname, join } from "node:path";
import { doEach, type EachResult, isFailed } from "../bulk.ts";
import type { FlatNode } from "../entries.ts";
import { group, quoteTitle } from "../terminal/text.ts";
import { CommandFailed, type ResultOf, type VerbContext } from "../verb.ts";
import type { ExportFormat } from "../verbs/export.ts";
import type {
  BrowseChange,
  BrowsedSession,
  BrowseEffect,
  BrowseEvent,
  ChangeOutcome,
  Facts,
  ListQuery,
} from "./state.ts";

/** Effects with an outcome that comes later. */
export type Action = Exclude<BrowseEffect, { do: "end" } | { do: "copy" }>;
type NextEvent = BrowseEvent | undefined;

/** Nodes of a tree that are asked for at a time, so that keys come in between. */
const NODES = 2000;
/** Hits that one search returns: 20 take 10 ms, during which no key is read. */
const HITS = 20;
/** Entries around a place. */
const AROUND = { before: 30, after: 30, characters: 1500 };
/** Milliseconds during which a further key makes a search or a preview needless. */
const SEARCH_WAIT = 120;
const PREVIEW_WAIT = 40;
/**
 * Milliseconds between the lookups of the sessions on a screen, which run one after the other: keys are read between
 * them.
 */
const LOOK_WAIT = 5;

const DAMAGED = new Set(["corrupt", "not_a_session"]);

/** Returns a function that carries out effects. It resolves to nothing where a later one took their place. */
export function createActions(asking: VerbContext): (effect: Action) => Promise<NextEvent> {
  const waitForSearch = latest(SEARCH_WAIT);
  const waitForPreview = latest(PREVIEW_WAIT);
  const looking = new Set<string>();
  const undoable: UndoableActions = { since: asking.page(0).now, paths: new Set(), groups: new Set() };
  return async (effect) => {
    switch (effect.do) {
      case "list":
        return catchFailure(true, () => list(asking, effect));
      case "search":
        return (await waitForSearch()) ? search(asking, effect) : undefined;
      case "preview":
        return (await waitForPreview()) ? preview(asking, effect) : undefined;
      case "look":
        return look(asking, effect.sessionPath, looking);
      case "open":
        return catchFailure(false, () => openTree(asking, effect.session));
      case "change":
        return catchFailure(false, async () => ({
          what: "done",
          outcome: await carriedOut(asking, effect.change, undoable),
        }));
    }
  };
}

function wait(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Returns a function that resolves after a while, to whether it was not called again meanwhile. */
function latest(milliseconds: number): () => Promise<boolean> {
  let calls = 0;
  return async () => {
    const own = ++calls;
    await wait(milliseconds);
    return own === calls;
  };
}

async function catchFailure(isList: boolean, run: () => Promise<NextEvent>): Promise<NextEvent> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    return { what: "failed", isList, message: error.message };
  }
}

// --- reading -----------------------------------------------------------------------------------------------------

async function list(
  { ask }: VerbContext,
  { query, cursor, limit, isQuick }: Action & { do: "list" },
): Promise<BrowseEvent> {
  if (query.shelf === "trash") return trash(ask, query);
  if (isQuick) {
    const { sessions, total } = await ask("list_sessions", { cwd: query.cwd, limit, quick: true });
    return { what: "listed", sessions, total, cursor: undefined };
  }
  const { sessions, total, nextCursor } = await ask("list_sessions", { ...paramsOf(query), cursor, limit });
  return { what: "listed", sessions, total, cursor: nextCursor };
}

function paramsOf({ shelf, cwd, words, sort, isNamed, agents }: ListQuery): Readonly<Record<string, unknown>> {
  return {
    cwd,
    query: words.trim() === "" ? undefined : words,
    archived: shelf === "archive" ? true : undefined,
    sort: sort === "modified" ? undefined : sort,
    named: isNamed ? true : undefined,
    agents,
  };
}

async function trash(ask: VerbContext["ask"], { words, isNamed }: ListQuery): Promise<BrowseEvent> {
  const items: ResultOf<"list_trash">["items"][number][] = [];
  let cursor: string | undefined;
  do {
    const page: ResultOf<"list_trash"> = await ask("list_trash", { cursor });
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  const sought = words.toLowerCase().split(/\s+/).filter(Boolean);
  const sessions = items
    // Undo alone brings leftovers of a session back.
    .flatMap(({ sessionId, ...item }) => (sessionId === null ? [] : [{ ...item, sessionId }]))
    .map((item) => ({
      ...item,
      itemPath: item.itemPath && join(item.itemPath, basename(item.sessionPath)),
      messageCount: item.messageCount ?? undefined,
      modified: item.deletedAt,
    }))
    .filter(({ name, sessionId, sessionPath }) => {
      const text = `${name ?? ""} ${sessionId} ${sessionPath}`.toLowerCase();
      return (!isNamed || name !== null) && sought.every((word) => text.includes(word));
    });
  return { what: "listed", sessions, total: sessions.length, cursor: undefined };
}

async function search(
  { ask }: VerbContext,
  { words, cwd, agents, cursor }: Action & { do: "search" },
): Promise<BrowseEvent> {
  try {
    const { hits, nextCursor } = await ask("search_sessions", { query: words, cwd, agents, limit: HITS, cursor });
    return { what: "found", words, hits, from: cursor, cursor: nextCursor };
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    return { what: "unfound", message: error.message };
  }
}

async function preview({ ask }: VerbContext, { place, ticket }: Action & { do: "preview" }): Promise<BrowseEvent> {
  try {
    return { what: "previewed", ticket, shown: await ask("preview_session", { ...place, ...AROUND }) };
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    const isDamaged = DAMAGED.has(error.error.data?.name ?? "");
    return { what: "unpreviewed", ticket, message: error.message, isDamaged };
  }
}

/** Looks at a session for its marks, unless it is being looked at. */
async function look({ ask }: VerbContext, sessionPath: string, looking: Set<string>): Promise<NextEvent> {
  if (looking.has(sessionPath)) return undefined;
  looking.add(sessionPath);
  let facts: Facts = { damageCount: 0 };
  try {
    await wait(LOOK_WAIT);
    facts = await ask("preview_session", { sessionPath, before: 0, after: 0, characters: 1 });
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    if (DAMAGED.has(error.error.data?.name ?? "")) facts = { damageCount: 1 };
  } finally {
    looking.delete(sessionPath);
  }
  return { what: "looked", sessionPath, facts };
}

/** Reads a tree by parts. The session is open for that time only, and for reading. */
async function openTree({ ask }: VerbContext, session: BrowsedSession): Promise<BrowseEvent> {
  const path = session.itemPath ?? session.sessionPath;
  const { sessionId } = await ask("open_session", { sessionPath: path, readOnly: true });
  try {
    const nodes: FlatNode[] = [];
    let cursor: string | undefined;
    let leafId: string | null = null;
    do {
      const page: ResultOf<"get_tree"> = await ask("get_tree", { sessionId, format: "flat", cursor, limit: NODES });
      nodes.push(...(page.nodes ?? []));
      ({ leafId } = page);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return { what: "opened", session, nodes, leafId };
  } finally {
    await ask("close_session", { sessionId });
  }
}

// --- changing ----------------------------------------------------------------------------------------------------

/** Returns the name of a session, so short that the rest of a notice has room. */
function titleOf(session: BrowsedSession): string {
  return quoteTitle(session, 24, session.sessionId);
}

const TAKEN_BACK = "u takes it back.";
const COPIED = " Text copied; q prints it.";

async function carriedOut(
  asking: VerbContext,
  change: BrowseChange,
  undoable: UndoableActions,
): Promise<ChangeOutcome> {
  const { ask } = asking;
  const sessionPath = "session" in change ? change.session.sessionPath : undefined;
  const title = "session" in change ? titleOf(change.session) : "";
  if (sessionPath !== undefined) undoable.paths.add(sessionPath);
  switch (change.change) {
    case "rename":
      await ask("set_session_name", { sessionPath, name: change.name });
      return { change, notice: `${title} is named ${change.name}. ${TAKEN_BACK}` };
    case "label":
      return label(asking, change);
    case "archive":
    case "unarchive":
    case "delete":
      return moveAll(asking, change, undoable);
    case "restore": {
      const { itemPath, sessionId } = change.session;
      const { movedTo } = await ask("restore_session", itemPath ? { sessionPath: itemPath } : { sessionId });
      return { change, notice: `${title} is back. ${TAKEN_BACK} (${movedTo})` };
    }
    case "export":
      return exported(asking, change);
    case "fork":
      return fork(asking, change, undoable);
    case "move":
      return move(asking, change);
    case "undo":
      return undo(asking, change, undoable);
    case "redo":
      return undone(change, await ask("redo"));
  }
}

type Moving = Extract<BrowseChange, { readonly change: "archive" | "unarchive" | "delete" }>;
type MovedOne = ResultOf<"archive_session"> & Pick<Partial<ResultOf<"delete_session">>, "trash">;

/** Moves the sessions of a change by one operation, and says which of them were not moved. */
async function moveAll(asking: VerbContext, change: Moving, undoable: UndoableActions): Promise<ChangeOutcome> {
  const { ask } = asking;
  const sessions = [change.session, ...(change.others ?? [])];
  const targets = sessions.map((session) => ({ operand: titleOf(session), path: session.sessionPath }));
  const result: EachResult<MovedOne> = await doEach(
    asking,
    targets,
    ({ path: sessionPath }, group): Promise<MovedOne> => {
      undoable.paths.add(sessionPath);
      return change.change === "delete"
        ? ask("delete_session", { sessionPath, group }).then((deleted) => ({ movedTo: "", ...deleted }))
        : ask(`${change.change}_session`, { sessionPath, group });
    },
  );
  if (!("results" in result)) return { change, notice: movedNotice(change, targets[0].operand, "is", result) };
  const { results } = result;
  const done = results.filter((one): one is MovedOne => !isFailed(one));
  const [failure, ...others] = results.filter(isFailed);
  const failed =
    failure && `${failure.operand}${others.length > 0 ? ` and ${others.length} more` : ""}: ${failure.sentence}`;
  if (done.length === 0) return { change, notice: `Nothing was changed. ${failed}`, moved: [] };
  undoable.groups.add(done[0].operationId);
  const notice = movedNotice(change, `${group(done.length)} sessions`, "are", done[0]);
  const moved = targets.slice(0, results.length).flatMap(({ path }, n) => (isFailed(results[n]) ? [] : [path]));
  return { change, notice: failed ? `${notice} Not ${failed}` : notice, moved };
}

function movedNotice({ change }: Moving, what: string, is: "is" | "are", { trash, movedTo }: MovedOne): string {
  const [back, them] = is === "is" ? [TAKEN_BACK, "it"] : ["u takes them back.", "them"];
  if (change === "unarchive") return `${what} ${is} back from the archive. ${back}`;
  if (change === "archive") return `${what} ${is} in the archive, which A shows. ${back}`;
  if (trash === "own") return `${what} ${is} in the trash, which D shows. ${back}${is === "is" ? ` (${movedTo})` : ""}`;
  return trash === "desktop"
    ? `${what} ${is} in the desktop's trash, which brings ${them} back.`
    : `${what} ${is} deleted.`;
}

/** Opens a session for a change and closes it behind it, so that others can write to it again. */
async function within<T>(
  { ask }: VerbContext,
  sessionPath: string,
  act: (sessionId: string) => Promise<T>,
): Promise<T> {
  const { sessionId } = await ask("open_session", { sessionPath });
  try {
    return await act(sessionId);
  } finally {
    await ask("close_session", { sessionId });
  }
}

async function label(asking: VerbContext, change: BrowseChange & { change: "label" }): Promise<ChangeOutcome> {
  const { session, entryId } = change;
  await within(asking, session.sessionPath, (sessionId) =>
    asking.ask("set_label", { sessionId, entryId, label: change.label === "" ? null : change.label }),
  );
  const title = titleOf(session);
  const notice =
    change.label === "" ? `A label in ${title} is cleared.` : `An entry of ${title} is labelled ${change.label}.`;
  return { change, notice: `${notice} ${TAKEN_BACK}` };
}

async function move(asking: VerbContext, change: BrowseChange & { change: "move" }): Promise<ChangeOutcome> {
  const { session, entryId, position, leafId: expectedLeafId } = change;
  const { leafId, durable, text } = await within(asking, session.sessionPath, (sessionId) =>
    asking.ask("branch", { sessionId, entryId, position, expectedLeafId }),
  );
  if (!durable)
    return { change, notice: "The move is not saved: another process is writing to the session, or it is read-only." };
  // The way back comes first, because a line that is too long is cut at its end.
  const copied = text === undefined ? "" : COPIED;
  return { change, leafId, text, notice: `The conversation goes on from here. ${TAKEN_BACK}${copied}` };
}

const FORMATS: Readonly<Record<string, ExportFormat>> = {
  ".md": "markdown",
  ".markdown": "markdown",
  ".html": "html",
  ".htm": "html",
};

async function exported(
  { ask, page }: VerbContext,
  change: BrowseChange & { change: "export" },
): Promise<ChangeOutcome> {
  const { session, file } = change;
  const format = FORMATS[extname(file).toLowerCase()] ?? "jsonl";
  // No shell expands a path that is typed here.
  const outputPath = file.replace(/^~(?=\/)/, () => page(0).home || "~");
  const { path } = await ask("export_session", { sessionPath: session.sessionPath, format, outputPath });
  return { change, notice: `${titleOf(session)} is written to ${path}.` };
}

async function fork(
  asking: VerbContext,
  change: BrowseChange & { change: "fork" },
  undoable: UndoableActions,
): Promise<ChangeOutcome> {
  const { ask } = asking;
  const { entryId, position } = change;
  const made: ResultOf<"clone"> & { readonly text?: string } = await within(
    asking,
    change.session.sessionPath,
    (sessionId) =>
      entryId === undefined ? ask("clone", { sessionId }) : ask("fork", { sessionId, entryId, position }),
  );
  // The copy became the server's current session, which `browse` does not use.
  await ask("close_session", { sessionId: made.sessionId });
  if (made.sessionFile !== null) undoable.paths.add(made.sessionFile);
  return {
    change,
    made: made.sessionFile ?? undefined,
    text: made.text || undefined,
    notice:
      entryId === undefined
        ? `${titleOf(change.session)} is copied into a new session. d deletes the copy.`
        : `${titleOf(change.session)} is copied up to here into a new session, which Esc shows.${made.text ? COPIED : ""}`,
  };
}

/** The changes of this screen, which `u` takes back without a question. */
interface UndoableActions {
  readonly since: number;
  readonly paths: Set<string>;
  /** The ids of those that changed several sessions. */
  readonly groups: Set<string>;
}

/** Operations that are looked through for the one to take back. */
const LATEST = 100;

async function undo(
  { ask }: VerbContext,
  change: BrowseChange & { change: "undo" },
  undoable: UndoableActions,
): Promise<ChangeOutcome> {
  const { operationId } = change;
  if (operationId !== undefined) return undone(change, await ask("undo", { operationId }));
  const { operations } = await ask("list_operations", { grouped: true, limit: LATEST });
  const last = operations.find(({ kind, undoneBy }) => !undoneBy && kind !== "undo" && kind !== "redo");
  if (!last) return { change, notice: "There is no change to take back." };
  if (last.canUndo === false) return { change, notice: `${last.text} ${last.reason ?? "That cannot be taken back."}` };
  const wanted = { change: "undo", operationId: last.operationId } as const;
  const isOne =
    last.size === undefined && Date.parse(last.at) >= undoable.since && undoable.paths.has(last.sessionPath);
  if (isOne || undoable.groups.has(last.operationId))
    return undone(change, await ask("undo", { operationId: last.operationId }));
  return {
    change,
    notice: "",
    question: { ask: "yes", question: `Take back a change from elsewhere? ${last.text}`, wanted },
  };
}

function undone(change: BrowseChange, { text, kind, sessionPath, refused = [] }: ResultOf<"undo">): ChangeOutcome {
  const hint = change.change === "undo" ? "U does it again." : TAKEN_BACK;
  const [first] = refused;
  const failed = first ? ` ${group(refused.length)} not: ${first.failure.message}` : "";
  return { change, notice: `${text} ${hint}${failed}`, undone: { kind, sessionPath } };
}
