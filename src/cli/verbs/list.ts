import { absolute } from "../../storage/fs/paths.ts";
import { numberAbove0 } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import {
  ageText,
  column,
  count,
  cutFront,
  cutTo,
  exact,
  grouped,
  inert,
  oneLine,
  shortPath,
  widthOf,
} from "../terminal/text.ts";
import type { Result, Verb } from "../verb.ts";

/** Sessions that are printed on a terminal by default. */
const ON_TERMINAL = 50;

export default {
  name: "list",
  meaning: "list sessions, the latest first",
  operands: [],
  flags: {
    "--cwd": { value: "dir", meaning: "only sessions of this working directory" },
    "--query": { value: "words", meaning: "only sessions with these words in name, first message, directory or id" },
    "--archived": { meaning: "archived sessions instead of the others" },
    "--all": { meaning: "all of them, also those in which nothing was said" },
    "--limit": { value: "n", meaning: `at most this many; ${ON_TERMINAL} on a terminal unless this or --all is given` },
    "--paths": { meaning: "print only the paths, one per line" },
  },
  more:
    "The one in which something was said last comes first. MSGS counts messages. Ids are shown as far as they differ; " +
    "show, tree and other verbs that only read accept them so.",
  run({ ask, cwd, isTerminal }, { flags }) {
    const all = flags.has("--all");
    const plain = flags.has("--json") || flags.has("--paths") || all || !isTerminal;
    const of = flags.get("--cwd");
    return ask("list_sessions", {
      cwd: of === undefined ? undefined : absolute(of, cwd),
      query: flags.get("--query"),
      archived: flags.has("--archived") ? true : undefined,
      headerOnly: all ? true : undefined,
      limit: numberAbove0(flags, "--limit") ?? (plain ? undefined : ON_TERMINAL),
    });
  },
  print({ sessions, total }, { flags }, page) {
    if (flags.has("--paths")) return sessions.map(({ sessionPath }: Result) => exact(sessionPath, page.isTerminal));
    if (sessions.length === 0) return [`There are no ${flags.has("--archived") ? "archived " : ""}sessions.`];
    return table(sessions, total, page);
  },
} satisfies Verb;

function* table(sessions: Result[], total: number, page: OutputStyle): Generator<string> {
  const { columns, head } = columnsFor(sessions, page);
  yield page.paint("dim", head);
  for (const session of sessions) yield sessionRow(session, columns, page);
  const left = total - sessions.length;
  if (left > 0) yield page.paint("dim", cutTo(`${count(left, "more session", "more sessions")}.`, page.width));
}

/** Widths of a list's columns, and characters of an id that are shown; 0 leaves a column out. */
export interface Columns {
  readonly age: number;
  readonly count: number;
  readonly title: number;
  readonly cwd: number;
  readonly id: number;
}

/** Text between two columns. */
const GAP = "  ";
const AGE = 4;
const ID = 8;
const SHORT_ID = 12;
const CWD = 9;
const TITLE = 16;

/** Returns the columns in which sessions fit a page, and the line above them. */
export function columnsFor(sessions: readonly Result[], page: OutputStyle): { columns: Columns; head: string } {
  const columns = widthsFor(sessions, page);
  const { age, count, title, cwd, id } = columns;
  const head = cells([
    column("AGE", age, "right"),
    column("MSGS", count, "right"),
    column("NAME OR FIRST MESSAGE", title),
    column("DIRECTORY", cwd),
    id === 0 ? "" : "ID",
  ]);
  return { columns, head: cutTo(head, page.width) };
}

/** Returns the widths of the columns. On a narrow page, all but the titles are left out one after the other. */
function widthsFor(sessions: readonly Result[], { width, home }: OutputStyle): Columns {
  let count = 4;
  let widest = CWD;
  for (const session of sessions) {
    count = Math.max(count, grouped(session.messageCount).length);
    widest = Math.max(widest, widthOf(shortPath(session.cwd ?? "", home)));
  }
  const numbers = AGE + count + 2 * GAP.length;
  if (width < numbers + TITLE) return { age: 0, count: 0, title: width, cwd: 0, id: 0 };
  const afterNumbers = width - numbers;
  if (afterNumbers < TITLE + GAP.length + ID) return { age: AGE, count, title: afterNumbers, cwd: 0, id: 0 };
  const most = idLength(sessions);
  const least = TITLE + CWD + 2 * GAP.length;
  const id = Math.max(ID, Math.min(most, afterNumbers - least));
  const afterId = afterNumbers - id - GAP.length;
  if (afterId < TITLE + GAP.length + CWD) return { age: AGE, count, title: afterId, cwd: 0, id };
  const cwd = Math.max(CWD, Math.min(widest, Math.floor(afterId * 0.35)));
  return { age: AGE, count, title: afterId - cwd - GAP.length, cwd, id };
}

/** Returns a session as one line, no wider than the page. */
export function sessionRow(session: Result, { age, count, title, cwd, id }: Columns, page: OutputStyle): string {
  const { paint } = page;
  const { name, firstMessage, messageCount, modified, sessionId } = session;
  const since = modified === null ? "" : ageText(page.now - Date.parse(modified));
  const text = oneLine(name ?? firstMessage ?? "");
  const folder = cutFront(shortPath(session.cwd ?? "", page.home), cwd);
  return cells([
    paint("dim", column(since, age, "right")),
    column(grouped(messageCount), count, "right"),
    text === "" ? paint("dim", column("(nothing said)", title)) : paint(name ? "bold" : "plain", column(text, title)),
    paint("dim", column(folder, cwd)),
    paint("cyan", inert(sessionId.slice(0, id))),
  ]);
}

/** Joins the columns that are shown; one without a width is empty. */
function cells(all: readonly string[]): string {
  return all.filter((text) => text !== "").join(GAP);
}

/** Returns how many characters tell the ids apart: at least eight, as people are used to, and all of short ids. */
function idLength(sessions: readonly Result[]): number {
  const ids = sessions.map(({ sessionId }) => String(sessionId)).sort();
  const longest = Math.max(0, ...new Set(ids.map((id) => id.length)));
  let length = longest <= SHORT_ID ? Math.max(ID, longest) : ID;
  for (let i = 1; i < ids.length; i++) {
    const [a, b] = [ids[i - 1], ids[i]];
    if (a === b) continue;
    let same = 0;
    while (same < a.length && a[same] === b[same]) same++;
    length = Math.max(length, same + 1);
  }
  return length;
}
