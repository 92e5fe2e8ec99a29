/** Verbs for what happened: the list of it, and the ways back and forth. */

import { timeFlag } from "../moments.ts";
import { numberAbove0 } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { ageText, column, cutTo, inert, oneLine, shortPath } from "../terminal/text.ts";
import { named, type Result, type Verb } from "../verb.ts";
import { inVerbs } from "../wording.ts";

/** Operations that are printed on a terminal by default. */
const ON_TERMINAL = 20;
const ID = 8;
const AGE = 4;
const SESSION = 20;
/** Columns of a page from which on the session has a column of its own. */
const WIDE = 72;
const GAP = "  ";

const IN = { value: "session", meaning: "the last of this session, by its path or id" };
const BACK =
  "Without an id, it is the last one that is not undone, so that undo again goes further back; redo comes forward again, " +
  "until something else is done. An id that operations prints, or 4 characters of it, names any other. What has changed " +
  "since is not taken back: undo says what it is. Nothing is lost by either, and what cannot be undone says so before.";

export const operations = {
  name: "operations",
  meaning: "list what was done to sessions, the latest first",
  operands: ["[session]"],
  flags: {
    "--since": { value: "time", meaning: "only what was done since, such as 2d, yesterday or 2026-01-24" },
    "--limit": { value: "n", meaning: `at most this many; ${ON_TERMINAL} on a terminal by default` },
    "--cursor": { value: "cursor", meaning: "continue where the last page ended" },
  },
  more:
    "Moves of the leaf, names, labels, archiving, deleting, relocating, migrating, repairing and importing, by any " +
    "process. undo takes one back by its id.",
  run(asking, { operands: [session], flags }) {
    const { ask, isTerminal } = asking;
    return ask("list_operations", {
      ...(session === undefined ? {} : named(session)),
      since: timeFlag(flags, "--since", asking),
      cursor: flags.get("--cursor"),
      limit: numberAbove0(flags, "--limit") ?? (isTerminal && !flags.has("--json") ? ON_TERMINAL : undefined),
    });
  },
  *print({ operations: found, nextCursor }, _given, page) {
    if (found.length === 0) yield "Nothing is recorded.";
    else yield page.paint("dim", cutTo(cells(page, "ID", "AGE", "SESSION", "OPERATION"), page.width));
    for (const operation of found) yield row(operation, page);
    if (nextCursor !== undefined) yield page.paint("dim", `There is more: --cursor ${inert(nextCursor)}`);
  },
} satisfies Verb;

function row(operation: Result, page: OutputStyle): string {
  const { operationId, at, name, sessionId, text, canUndo, undoneBy, reason } = operation;
  const mark = undoneBy !== undefined ? "(undone) " : canUndo ? "" : "(final) ";
  const why = canUndo || undoneBy !== undefined || reason === undefined ? "" : ` ${inVerbs(reason)}`;
  const age = ageText(page.now - Date.parse(at));
  const line = cells(page, operationId, age, name ?? sessionId.slice(0, ID), `${mark}${text}${why}`);
  return page.paint(undoneBy !== undefined ? "dim" : "plain", cutTo(line, page.width));
}

function cells({ width }: OutputStyle, id: string, age: string, session: string, text: string): string {
  const wide = width < WIDE ? [] : [column(oneLine(session), SESSION)];
  return [column(inert(id.slice(0, ID)), ID), column(age, AGE, "right"), ...wide, oneLine(text)].join(GAP);
}

export const undo = {
  name: "undo",
  meaning: "take back what was done last, or an operation by its id",
  operands: ["[id]"],
  flags: { "--in": IN },
  more: BACK,
  run: (asking, given) => asking.ask("undo", wanted(given)),
  print: (result, _given, page) => [...lines(result, page), "redo brings it back."],
} satisfies Verb;

export const redo = {
  name: "redo",
  meaning: "bring back what undo took",
  operands: ["[id]"],
  flags: { "--in": IN },
  more: BACK,
  run: (asking, given) => asking.ask("redo", wanted(given)),
  print: (result, _given, page) => [...lines(result, page), "undo takes it back again."],
} satisfies Verb;

function wanted({ operands: [operationId], flags }: Parameters<Verb["run"]>[1]) {
  const session = flags.get("--in");
  return { operationId, ...(session === undefined ? {} : named(session)) };
}

function lines({ text, sessionId, sessionPath }: Result, { home }: OutputStyle): string[] {
  const where = sessionPath === "" ? [] : [`  ${inert(sessionId.slice(0, ID))}  ${shortPath(sessionPath, home)}`];
  return [oneLine(text), ...where];
}
