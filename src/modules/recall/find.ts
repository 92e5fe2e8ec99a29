/** The tool find: hits of a question, the best first, two of a session and each entry of a family once. */

import { findBestLine, fold, type Query } from "../../core/search/query.ts";
import { parseRankedQuery } from "../../core/search/ranking.ts";
import type { CommandResult, RecallHit, RecallSession } from "../../server/recall-module.ts";
import { foldCursor, makeCursor, readCursor, requestOf, type UnfoldedCursor, unfoldCursor } from "./cursors.ts";
import { type Library, splitRef } from "./library.ts";
import { agentsParam, budgetParam, cursorParam, projectParam, sinceParam, untilParam } from "./params.ts";
import type { Redaction } from "./redaction.ts";
import {
  findOwnAndCount,
  formatDay,
  formatFolder,
  formatHead,
  formatSession,
  formatTitle,
  type OwnSession,
  type RecallCall,
  readScope,
  type Tool,
  toBytesOf,
} from "./shared.ts";
import { AnswerText, cutBytes, fence, quote } from "./texts.ts";

const USUAL_TOKENS = 2000;
const USUAL_HITS = 5;
/** Hits of one session, unless one is asked about. */
const OF_ONE_SESSION = 2;
/** Share of its rating that a hit keeps for each better one of its session: other sessions come before it. */
const AGAIN = 0.8;
/** Hits that are put in order at once, and such windows that are looked through for one answer. */
const WINDOW = 12;
const MOST_WINDOWS = 50;
const MONTH = 30 * 86_400_000;
/** Entries next to a hit among which the one that belongs to it is looked for. */
const NEAR = 12;
/** Characters of it, of a question, and those that are read for it: half a secret at their end is left out. */
const OF_NEIGHBOUR = 150;
const OF_QUESTION = 90;
const READ_OF_NEIGHBOUR = 2000;
/** Hits of a page that come with it. */
const MOST_WITH_NEIGHBOUR = 5;

const PARTS: Readonly<Record<string, readonly string[]>> = {
  said: ["user", "assistant"],
  calls: ["toolCall"],
  outputs: ["toolResult", "bashExecution"],
  all: ["user", "assistant", "toolCall", "toolResult", "bashExecution"],
};
/** A query that is meant as an id, or as the hash of a commit. */
const AN_ID = /^(?=.*\d)[0-9a-f]{8}(?:-[0-9a-f-]+)?(?:#\S*)?$/i;
/** Tools whose calls repeat what sessions say: this server's own. */
const OWN_TOOL = /(?:^|_)sessions?__(?:find|recent|open|tree|compare|history)$/;

/** Place of the next hits: the search that it goes on with, hits that were given, the time of the first call. */
interface FindPlace {
  readonly begins?: UnfoldedCursor;
  readonly given: number;
  readonly now: number;
  readonly own: readonly string[];
}

/** A hit with the number of its copies in other sessions of the family. */
interface GatheredHit {
  readonly hit: RecallHit;
  copies: number;
}

export const find: Tool = {
  name: "find",
  title: "Search past sessions",
  description:
    "Search what users, assistants and tools said in past coding sessions of every agent on this machine (Pi, Claude Code, " +
    "Codex, Gemini, opencode and more). Use it before you redo work, when the user refers to earlier work, or meets an error " +
    "again. Words need not all be there; the best come first. Each hit has a ref (session#entry): open it for the conversation " +
    "around. An id, a name or a path finds that session.",
  operands: ["query"],
  params: {
    query: { type: "string", description: 'words or "phrases", or a ref; may be left out with file or tool' },
    in: { type: "string", oneOf: Object.keys(PARTS), description: "said (default): users and assistants" },
    agents: agentsParam,
    project: projectParam,
    since: sinceParam,
    until: untilParam,
    file: { type: "string", description: "only calls on this path or path end" },
    tool: { type: "string", description: "only calls of this tool" },
    branch: { type: "string", oneOf: ["any", "active", "abandoned"] },
    session: { type: "string", description: "only in this session" },
    limit: { type: "integer", most: 20, description: `default ${USUAL_HITS}` },
    max_tokens: budgetParam(USUAL_TOKENS, 6000),
    cursor: cursorParam,
  },
  async run(call) {
    const { library, args, redaction } = call;
    const { query = "", file, tool } = args as { query?: string; file?: string; tool?: string };
    const place = readCursor<FindPlace>(args.cursor, "find", requestOf(args));
    const isAlone = [file, tool, args.session, place].every((one) => one === undefined);
    const named = isAlone && looksLikeName(query) ? await library.candidates(splitRef(query).session) : [];
    if (named.length > 0) return describeNamed(library, redaction, query, named);
    if (query.trim() === "" && file === undefined && tool === undefined)
      return "Give a query, or a file or tool whose calls you look for.";
    const text = await findTexts(call, place);
    if (!isAlone || !AN_ID.test(query.trim())) return text;
    return text.replace("\n", "; no session has this id, which was searched as a word\n");
  },
};

/** Returns whether a query may be meant as an id, a path or a name. */
function looksLikeName(query: string): boolean {
  const text = query.trim();
  return text !== "" && text.length <= 300 && (!/\s/.test(text) || text.split(/\s+/).length <= 8);
}

async function describeNamed(
  library: Library,
  redaction: Redaction,
  query: string,
  sessions: readonly RecallSession[],
): Promise<string> {
  const { entry } = splitRef(query);
  const answer = new AnswerText(USUAL_TOKENS * 4);
  for (const session of sessions.slice(0, USUAL_HITS)) answer.add(formatSession(session, library, redaction));
  const [{ shortId }] = sessions;
  const ref = entry === undefined ? shortId : `${shortId}#${entry}`;
  const head = sessions.length === 1 ? "This names a session" : `This names ${sessions.length} sessions`;
  return answer.finish(
    `${head}; nothing else was searched.`,
    `Call open or tree with ${sessions.length === 1 ? "ref" : "the ref of one, such as"} ${quote(ref, 80)}.`,
  );
}

async function findTexts(call: RecallCall, given: FindPlace | undefined): Promise<string> {
  const { library, args, redaction } = call;
  const { world } = library;
  const now = given?.now ?? world.now();
  const scope = readScope(call);
  const { own: latest, all } = await findOwnAndCount(library);
  const own: OwnSession = given ? { surely: given.own, perhaps: [] } : latest;
  const within = typeof args.session === "string" ? await library.find(splitRef(args.session).session) : undefined;
  const isOwn = (id: string): boolean => own.surely.includes(id) && id !== within?.sessionId;
  const { agents, cwd, since, until } = scope;
  const isAll = cwd === undefined && agents === undefined && since === undefined;
  const inScope = isAll ? all : await library.count({ agents, cwd, since });
  const request = {
    agents,
    cwd: within?.cwd ?? cwd,
    since,
    until,
    query: args.query,
    file: args.file,
    tool: args.tool,
    in: args.in === undefined && (args.file ?? args.tool) !== undefined ? undefined : PARTS[String(args.in ?? "said")],
    ranked: typeof args.query === "string" && args.query.trim() !== "",
  };
  const limit = Number(args.limit ?? USUAL_HITS);
  const from = given?.given ?? 0;
  const found = await gather(
    library,
    request,
    given?.begins === undefined ? undefined : foldCursor(given.begins),
    from + limit + 1,
    {
      isWanted: (hit) =>
        !isOwn(hit.sessionId) &&
        !OWN_TOOL.test(hit.tool ?? "") &&
        (within === undefined || hit.sessionPath === within.sessionPath) &&
        (args.branch === undefined || args.branch === "any" || hit.onActivePath === (args.branch === "active")),
      rate: (hit) => rate(hit, now, world.cwd),
      mostOfSession: within ? Number.POSITIVE_INFINITY : OF_ONE_SESSION,
    },
  );
  const answer = new AnswerText(toBytesOf(args.max_tokens, USUAL_TOKENS));
  const words = parseRankedQuery(String(args.query ?? ""))?.map(({ stem }) => stem) ?? [];
  let shown = from;
  for (const one of found.hits.slice(from, from + limit)) {
    const part = await formatHit(library, redaction, one, {
      number: shown + 1,
      more: found.moreOf(one.hit),
      isPerhapsOwn: own.perhaps.includes(one.hit.sessionId),
      isAmongFirst: shown - from < MOST_WITH_NEIGHBOUR,
      isOfLast: shown > from && found.hits[shown - 1].hit.sessionPath === one.hit.sessionPath,
      query: words,
    });
    // However little room there is, each page has a hit.
    if (!answer.add(part) && !(answer.isEmpty && answer.add(cutBytes(part.split("\n")[0], answer.room).text))) break;
    shown++;
  }
  const perhaps = found.hits.slice(from, shown).find(({ hit }) => own.perhaps.includes(hit.sessionId))?.hit.shortId;
  const head = formatHead(library, {
    matching: inScope.total,
    total: all.total,
    lists: [inScope, found],
    leftOut: own.surely.length > 0 ? ["this session"] : [],
    perhapsOwn: perhaps,
  });
  if (answer.isEmpty) {
    const why =
      from > 0 ? "There is nothing more." : "Nothing was found. Try fewer or other words, in: all, or a wider scope.";
    return answer.finish(head, why);
  }
  const hasMore = shown < found.hits.length;
  const next: FindPlace = {
    begins: found.begins === undefined ? undefined : unfoldCursor(found.begins),
    given: shown,
    now,
    own: own.surely,
  };
  const cursor = hasMore ? makeCursor("find", requestOf(args), next) : undefined;
  return answer.finish(
    head,
    cursor === undefined
      ? found.behind > 0
        ? "Not all is read yet. Ask again."
        : "That is all."
      : `More with the same request and cursor: ${cursor}`,
  );
}

interface Gathering {
  isWanted(hit: RecallHit): boolean;
  rate(hit: RecallHit): number;
  readonly mostOfSession: number;
}

/** Returns the id of the session in which an entry was first. */
function originOf({ sessionId, inheritedFrom }: RecallHit): string {
  return inheritedFrom?.sessionId ?? sessionId;
}

/** Reads windows of hits until so many are found that may be shown. From the same beginning it returns the same hits. */
async function gather(
  library: Library,
  request: Readonly<Record<string, unknown>>,
  begins: string | undefined,
  enough: number,
  { isWanted, rate, mostOfSession }: Gathering,
) {
  const hits: GatheredHit[] = [];
  const bySession = new Map<string, number>();
  const byEntry = new Map<string, GatheredHit>();
  const notRead: string[] = [];
  let behind = 0;
  let cursor = begins;
  let first = begins;
  for (let windows = 0; windows < MOST_WINDOWS; windows++) {
    const page = await library.search({ ...request, cursor, limit: WINDOW });
    behind = Math.max(behind, page.behind);
    notRead.push(...page.notRead);
    first ??= page.begins;
    const rated = page.hits.filter(isWanted).map((hit) => ({ hit, rating: rate(hit) }));
    const better = new Map<string, number>();
    for (const one of rated.sort((a, b) => b.rating - a.rating)) {
      const origin = originOf(one.hit);
      const count = better.get(origin) ?? 0;
      better.set(origin, count + 1);
      one.rating *= AGAIN ** count;
    }
    for (const { hit } of rated.sort((a, b) => b.rating - a.rating)) {
      const origin = originOf(hit);
      const entry = `${origin} ${hit.entryId} ${hit.part} ${hit.line}`;
      const known = byEntry.get(entry);
      if (known) {
        known.copies++;
        continue;
      }
      const count = (bySession.get(origin) ?? 0) + 1;
      bySession.set(origin, count);
      const one = { hit, copies: 0 };
      byEntry.set(entry, one);
      if (count <= mostOfSession) hits.push(one);
    }
    cursor = page.nextCursor;
    if (cursor === undefined || hits.length >= enough) break;
  }
  const moreOf = (hit: RecallHit): number => Math.max(0, (bySession.get(originOf(hit)) ?? 0) - mostOfSession);
  return { hits, behind, notRead, begins: first, moreOf };
}

/** Returns how well a hit fits here and now: that of this project and of the last days first, that of a branch left behind last. */
function rate({ score = 1, at, cwd, onActivePath, name }: RecallHit, now: number, here: string): number {
  const isNew = at !== null && now - Date.parse(at) < MONTH;
  return score * (cwd === here ? 1.25 : 1) * (isNew ? 1.15 : 1) * (onActivePath ? 1 : 0.7) * (name ? 1.05 : 1);
}

/** The facts about a hit that depend on the request and on the hits before it. */
interface HitMarks {
  readonly number: number;
  /** Hits of its session that are left out. */
  readonly more: number;
  readonly isPerhapsOwn: boolean;
  readonly isAmongFirst: boolean;
  /** True if the hit before it is of the same session, which needs no introduction any more. */
  readonly isOfLast: boolean;
  readonly query: Query;
}

async function formatHit(
  library: Library,
  redaction: Redaction,
  { hit, copies }: GatheredHit,
  { number, more, isPerhapsOwn, isAmongFirst, isOfLast, query }: HitMarks,
): Promise<string> {
  const { shortId, entryId, agent = "pi", role, tool, part, at, onActivePath, cwd, line, isArchived } = hit;
  const head = [
    `${number}. ${shortId}#${entryId}`,
    agent,
    part === "toolCall" ? `call of ${tool ?? "a tool"}` : tool ? `output of ${tool}` : role,
    formatDay(at),
    ...(isOfLast ? [] : [formatFolder(cwd, library.world.home, redaction)]),
    ...(onActivePath ? [] : ["abandoned branch"]),
    ...(isArchived ? ["archived"] : []),
    ...(copies > 0 ? [`also in ${copies} of its forks`] : []),
    ...(more > 0 ? [`+${more} more in this session`] : []),
    ...(isPerhapsOwn ? ["perhaps this session"] : []),
    ...(isOfLast || hit.firstMessage === line ? [] : [formatTitle(hit, redaction, 60)]),
  ].join(" · ");
  // Each opens a session, which takes longer than the search.
  const neighbour = isAmongFirst ? await findNeighbour(library, redaction, hit, query) : undefined;
  return [head, fence(line), ...(neighbour === undefined ? [] : [neighbour])].join("\n");
}

/**
 * Returns the entry that belongs to a hit on one line: the answer to a question, the question of an answer, the output of a
 * call that failed, or the call of an output.
 */
async function findNeighbour(
  library: Library,
  redaction: Redaction,
  { sessionPath, entryId, part, tool }: RecallHit,
  query: Query,
): Promise<string | undefined> {
  const isAfter = part === "user" || part === "toolCall";
  const near = { before: isAfter ? 0 : NEAR, after: isAfter ? NEAR : 0, characters: READ_OF_NEIGHBOUR };
  const { entries } = await library.world
    .ask("preview_session", { sessionPath, entryId, ...near })
    .catch(() => ({ entries: [] }));
  const others: CommandResult[] = entries.filter(({ id }: CommandResult) => id !== entryId);
  for (const { id, role, text, isCut, isError, toolName, calls } of isAfter ? others : others.reverse()) {
    const say = (word: string, shown: string): string =>
      `${word} #${id}: ${quote(shown, word === "asked" ? OF_QUESTION : OF_NEIGHBOUR)}`;
    const called = calls?.find(({ name }: CommandResult) => name === tool);
    if (part === "toolResult" && called)
      return say("call", redaction.text(called.argument, called.argument.length >= 80));
    if (part === "toolCall" && role === "toolResult" && toolName === tool) {
      return isError ? say("failed", findTellingLine(redaction.text(text, isCut === true), query)) : undefined;
    }
    if (isAfter && role === "user") return undefined;
    const isOther = (part === "user" && role === "assistant") || (part === "assistant" && role === "user");
    if (isOther && text.trim() !== "")
      return say(part === "user" ? "answer" : "asked", findTellingLine(redaction.text(text, isCut === true), query));
  }
  return undefined;
}

/** Returns the line of a text with most of the words. */
function findTellingLine(text: string, query: Query): string {
  return findBestLine(text, fold(text), query);
}
