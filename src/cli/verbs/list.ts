import { NOTHING_SAID } from "../../core/search/listing.ts";
import { getInfo } from "../../storage/fs/files.ts";
import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { hintAtDirectory } from "../directory-hint.ts";
import { formatLimits } from "../limits.ts";
import { formatLockOwner } from "../lock-owner.ts";
import { AGENTS_FLAG, CWD_FLAG, getChoice, HERE_FLAG, parseAgents, parsePositive } from "../options.ts";
import {
  AGE,
  CWD,
  fitColumns,
  formatListHead,
  formatSessionLine,
  type SessionColumns,
  TITLE_HEAD,
} from "../session-columns.ts";
import type { OutputStyle } from "../terminal/page.ts";
import {
  count,
  cutTo,
  escapeLine,
  fill,
  formatAge,
  formatMoney,
  formatSize,
  getWidth,
  group,
  pad,
  shortenId,
  shortenPath,
  show,
  toRawPath,
} from "../terminal/text.ts";
import { parseTimeFlag } from "../time-parser.ts";
import { DAMAGE, defineVerb, OK, type ResultOf, type VerbArguments, type VerbContext } from "../verb.ts";
import { formatUnreadFiles } from "./doctor.ts";
import { formatTrash } from "./trash.ts";

/** Sessions that are printed on a terminal by default. */
const ON_TERMINAL = 50;

/** The mark before the title of a session that was forked from another, and of one that another process writes to. */
const FORK = "↳";
const HELD = "*";
/** The mark before the title of a damaged one. */
const DAMAGED = "!";

export type ListedSession = ResultOf<"list_sessions">["sessions"][number];

export default defineVerb({
  name: "list",
  aliases: ["ls"],
  meaning: "list sessions, the latest first",
  operands: [],
  flags: {
    "--cwd": CWD_FLAG,
    "--agents": AGENTS_FLAG,
    "--query": {
      value: "words",
      meaning:
        "list only sessions with these words in their name, labels, first message, directory or id, also those without any entry",
    },
    "--since": {
      value: "time",
      meaning: 'list only sessions with a message since, such as 2d, "last week", march',
    },
    "--until": {
      value: "time",
      meaning:
        "list only sessions without a message since this time, such as 90d; a day, week or month means its beginning",
    },
    "--named": { meaning: "list only sessions with a name" },
    "--top": { meaning: "leave out forks" },
    "--unnamed": { meaning: "list only sessions without a name" },
    "--archived": { meaning: "list archived sessions instead" },
    "--sort": {
      value: "order",
      oneOf: ["modified", "created", "name", "size", "cost"],
      meaning: "sort by modified (default), created, name, size (with the sum of all) or cost",
    },
    "--trash": { meaning: "list deleted sessions, as trash does" },
    "--all": { meaning: "list all sessions, also those without any entry" },
    "--limit": {
      value: "n",
      meaning: `list at most this many; ${ON_TERMINAL} on a terminal unless this or --all is given`,
    },
    "--here": HERE_FLAG,
    "--paths": { meaning: "print only the paths, one per line" },
  },
  more:
    `A mark before the title says more: ${FORK} a fork, with the name or the id of its original behind the title, ${HELD} open in another process, ${DAMAGED} damaged (see verify). ` +
    "On a terminal, and where COLUMNS says how wide it is, titles are cut to fit; in a file or a pipe they are whole. " +
    "Every verb takes an id as short as list prints it. stats --by month, and --by session,model, say what was spent when, and on which model. The exit status is 3 if a file is damaged so that no session can be read from it.",
  async run(asking, { flags }) {
    const { ask, isTerminal } = asking;
    if (flags.has("--trash")) return ask("list_trash");
    const all = flags.has("--all");
    const plain = flags.has("--json") || flags.has("--paths") || all || !isTerminal;
    const choice = parseChoice(asking, flags);
    const result = await ask("list_sessions", {
      ...choice,
      agents: parseAgents(flags),
      named: flags.has("--named") ? true : undefined,
      unnamed: flags.has("--unnamed") ? true : undefined,
      top: flags.has("--top") ? true : undefined,
      sort: getChoice(flags, "--sort"),
      archived: flags.has("--archived") ? true : undefined,
      headerOnly: all ? true : choice.headerOnly,
      here: flags.has("--here") ? true : undefined,
      holders: flags.has("--paths") ? undefined : true,
      limit: parsePositive(flags, "--limit") ?? (plain ? undefined : ON_TERMINAL),
    });
    if (choice.cwd !== undefined && result.total === 0 && !flags.has("--json"))
      return {
        ...result,
        isHinted: await hintAtDirectory(asking, choice.cwd, flags.has("--archived")),
        missing: getInfo(asking.disk, choice.cwd) === null ? choice.cwd : undefined,
      };
    return result;
  },
  isExact: ({ flags }) => flags.has("--paths"),
  status: (result) => ("notRead" in result && result.notRead?.some(({ isDamaged }) => isDamaged) ? DAMAGE : OK),
  print(result, { flags }, page) {
    if ("items" in result) return formatTrash(result, page);
    const { sessions, total } = result;
    if (flags.has("--paths")) return sessions.map(({ sessionPath }) => toRawPath(sessionPath, page.isTerminal));
    const limits = [...formatLimits(result, page), ...formatUnreadFiles(result.notRead, page)];
    const isHinted = "isHinted" in result && result.isHinted;
    const missing = "missing" in result ? result.missing : undefined;
    if (sessions.length === 0) return isHinted ? limits : [describeNone(flags, missing), ...limits];
    const sum =
      flags.get("--sort") === "size" && result.totalBytes !== undefined
        ? [page.paint("dim", `${count(total, "session", "sessions")}, ${formatSize(result.totalBytes)} in all.`)]
        : [];
    return [...formatSessionTable(sessions, total, page, flags.get("--sort")), ...sum, ...limits];
  },
});

/** Options that leave sessions out of a list. */
const CHOOSING = ["--cwd", "--query", "--since", "--until", "--named", "--unnamed", "--top", "--here"];

/** Returns the line for a list without sessions: that none fits, or that there are none. `missing`: no folder has that path. */
function describeNone(flags: VerbArguments["flags"], missing: string | undefined): string {
  const archived = flags.has("--archived") ? "archived " : "";
  const given = CHOOSING.filter((name) => flags.has(name));
  const why = missing === undefined || given.length > 1 ? "" : show`: there is no folder ${missing}`;
  if (given.length > 0) return `No ${archived}session fits${why}.`;
  const more = "list --agents shows those of other agents; doctor says where sessions are looked for.";
  return `There are no ${archived}sessions.${archived || flags.has("--agents") ? "" : ` ${more}`}`;
}

/** Returns the params of a list that choose sessions by directory, words and time. Throws UsageError. */
export function parseChoice(asking: VerbContext, flags: VerbArguments["flags"]) {
  const of = flags.get("--cwd");
  const query = flags.get("--query");
  return {
    cwd: of === undefined ? undefined : toAbsolutePath(of, asking.cwd),
    query,
    // Words may be those of a session without any entry.
    headerOnly: query === undefined ? undefined : (true as const),
    since: parseTimeFlag(flags, "--since", asking),
    until: parseTimeFlag(flags, "--until", asking),
  };
}

export function* formatSessionTable(
  sessions: readonly ListedSession[],
  total: number,
  page: OutputStyle,
  sort?: string,
): Generator<string> {
  const shown = AMOUNTS[sort ?? ""];
  const columns = columnsFor(sessions, page, shown);
  yield page.paint("dim", formatListHead(columns, "AGE", shown?.head ?? "", page.width));
  for (const session of sessions) yield sessionRow(session, columns, shown, page);
  const left = total - sessions.length;
  if (left > 0) yield page.paint("dim", cutTo(`${count(left, "more session", "more sessions")}.`, page.width));
  for (const session of sessions) yield* holderLines(session, page);
}

/** Yields which process has a session open, where that is known and one has. */
function* holderLines(session: ListedSession, page: OutputStyle): Generator<string> {
  if (session.lockedBy === undefined) return;
  yield page.paint("yellow", `${HELD} ${idText(session)} is open in ${formatLockOwner(session.lockedBy)}.`);
}

/** A column for the sort key of the sessions. */
interface Amount {
  readonly head: string;
  readonly of: (session: ListedSession) => string;
}

const AMOUNTS: Readonly<Record<string, Amount>> = {
  size: { head: "SIZE", of: ({ sizeBytes }) => formatSize(sizeBytes) },
  cost: { head: "COST", of: ({ cost }) => (cost === undefined ? "unknown" : formatMoney(cost, 2)) },
};

/** Characters of an id that are shown at least. */
const ID = 8;
/** Most characters of an id that is shown as a whole. */
const WHOLE = 12;
/** Columns of a title at least. */
const TITLE = 16;
/** Columns of titles at most in a file or a pipe. */
const PIPED_TITLE = 60;

function columnsFor(sessions: readonly ListedSession[], { width, home }: OutputStyle, shown?: Amount): SessionColumns {
  const widest = (least: number, of: (session: ListedSession) => string): number =>
    sessions.reduce((most, session) => Math.max(most, getWidth(of(session))), least);
  const wanted = {
    age: AGE,
    count: widest(4, ({ messageCount }) => group(messageCount)),
    amount: shown ? widest(AGE, shown.of) : 0,
    title: TITLE,
    cwd: widest(1, ({ cwd }) => shortenPath(cwd ?? "", home)),
    id: widest(ID, idText),
  };
  if (Number.isFinite(width)) return fitColumns(wanted, width);
  // A longer title is whole, and moves the rest of its row.
  return {
    ...wanted,
    title: Math.min(PIPED_TITLE, widest(TITLE_HEAD.length, titleOf)),
    cwd: Math.max(CWD, wanted.cwd),
  };
}

/** Returns the beginning of a session's id that no other session's id has. */
function idText({ sessionId, shortId }: ListedSession): string {
  return show`${shortId ?? (sessionId.length <= WHOLE ? sessionId : sessionId.slice(0, ID))}`;
}

/** Returns a session as one line, no wider than the page. */
function sessionRow(
  session: ListedSession,
  columns: SessionColumns,
  shown: Amount | undefined,
  page: OutputStyle,
): string {
  const { title } = columns;
  const { paint, home } = page;
  const { name, messageCount, modified, cwd } = session;
  const text = titleOf(session);
  const fitted = Number.isFinite(page.width) ? pad : fill;
  const cells = {
    age: modified === null ? "" : formatAge(page.now - Date.parse(modified)),
    count: group(messageCount),
    amount: shown?.of(session) ?? "",
    title:
      text === "" ? paint("dim", fitted(NOTHING_SAID, title)) : paint(name ? "bold" : "plain", fitted(text, title)),
    cwd: shortenPath(cwd ?? "", home),
    id: idText(session),
  };
  return formatSessionLine(columns, cells, paint);
}

/** Returns the title of a session. A fork begins as its original does, so its mark and that name distinguish it. */
function titleOf({ name, firstMessage, parentSession, forkedFrom, lockedBy, agent, isDamaged }: ListedSession): string {
  const own = escapeLine(name ?? firstMessage ?? "");
  const text = agent === undefined ? own : `${agent}: ${own === "" ? NOTHING_SAID : own}`;
  const marks = [isDamaged ? DAMAGED : "", lockedBy ? HELD : "", parentSession ? FORK : ""].filter(Boolean);
  if (marks.length === 0) return text;
  const original = forkedFrom ? ` (fork of ${escapeLine(forkedFrom.name ?? shortenId(forkedFrom.sessionId))})` : "";
  return `${marks.join(" ")} ${text === "" ? NOTHING_SAID : text}${original}`;
}
