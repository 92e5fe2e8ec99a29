/** Verbs for what happened: the list of it, and the ways back and forth. */

import { Failure } from "../../core/failure.ts";
import { parsePositive } from "../options.ts";
import { findRecordedSession } from "../sessions.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { cutTo, escapeLine, fill, formatAge, pad, shortenPath, show } from "../terminal/text.ts";
import { parseTimeFlag } from "../time-parser.ts";
import {
  CommandFailed,
  defineVerb,
  FAILURE,
  OK,
  type ResultOf,
  type VerbArguments,
  type VerbContext,
} from "../verb.ts";
import { rewordAsVerbs } from "../wording.ts";

/** Operations that are printed on a terminal by default. */
const ON_TERMINAL = 20;
const ID = 8;
/** Characters of an id if nothing else identifies the session. */
const WHOLE_ID = 36;
const AGE = 4;
const SESSION = 20;
/** Least columns of a page with a column for the session. */
const WIDE = 72;
const GAP = "  ";

const IN = { value: "session", meaning: "choose among operations on this session" };
/** Milliseconds after which undo asks first: the change may not be the one that the person thinks of. */
const OLD = 600_000;
/** Kinds of operations that brought a session, whose undo moves it to the trash. */
const IN_TRASH: ReadonlySet<string> = new Set(["import", "fork", "restore"]);
const REFUSES =
  "An id from operations, or 4 characters of it, names another one. Where something has changed since, it refuses and says what.";

export const operations = defineVerb({
  name: "operations",
  meaning: "list the changes to sessions, the latest first",
  operands: ["[session]"],
  flags: {
    "--since": { value: "time", meaning: "list only changes since, such as 2d, yesterday or 2026-01-24" },
    "--limit": { value: "n", meaning: `list at most this many; ${ON_TERMINAL} on a terminal by default` },
    "--cursor": { value: "cursor", meaning: "continue where the last page ended" },
  },
  more: "It lists moves of the leaf, names, labels, forks, merges, archiving, deleting, relocating, migrating, repairing and importing, by any process. undo takes an id from here.",
  async run(asking, { operands: [session], flags }) {
    const { ask, isTerminal } = asking;
    return ask("list_operations", {
      ...(session === undefined ? {} : await findRecordedSession(asking, session)),
      // The record has each with its own id; a person thinks of changes made at once as one.
      grouped: flags.has("--json") ? undefined : true,
      since: parseTimeFlag(flags, "--since", asking),
      cursor: flags.get("--cursor"),
      limit: parsePositive(flags, "--limit") ?? (isTerminal && !flags.has("--json") ? ON_TERMINAL : undefined),
    });
  },
  *print({ operations: found, nextCursor }, _given, page) {
    if (found.length === 0) yield "Nothing is recorded.";
    else yield page.paint("dim", cutTo(cells(page, "ID", "AGE", "SESSION", "OPERATION"), page.width));
    for (const operation of found) yield row(operation, page);
    if (nextCursor !== undefined) yield page.paint("dim", show`There is more: --cursor ${nextCursor}`);
  },
});

function row(operation: ResultOf<"list_operations">["operations"][number], page: OutputStyle): string {
  const { operationId, at, name, sessionId, text, canUndo, undoneBy, reason, size = 1, undone = 0 } = operation;
  const part = undone > 0 && undone < size ? `(${undone} undone) ` : "";
  const mark = part || (undoneBy !== undefined ? "(undone) " : canUndo ? "" : "(final) ");
  const why = canUndo || undoneBy !== undefined || reason === undefined ? "" : ` ${rewordAsVerbs(reason)}`;
  const age = formatAge(page.now - Date.parse(at));
  const session = size > 1 ? `${size} sessions` : (name ?? sessionId.slice(0, ID));
  const line = cells(page, operationId, age, session, `${mark}${text}${why}`);
  return page.paint(undoneBy !== undefined ? "dim" : "plain", cutTo(line, page.width));
}

function cells({ width }: OutputStyle, id: string, age: string, session: string, text: string): string {
  const wide = width < WIDE ? [] : [(Number.isFinite(width) ? pad : fill)(escapeLine(session), SESSION)];
  return [pad(show`${id.slice(0, ID)}`, ID), pad(age, AGE, "right"), ...wide, escapeLine(text)].join(GAP);
}

export const undo = defineVerb({
  name: "undo",
  meaning: "take back the last change, or an operation by its id",
  operands: ["[id]"],
  flags: { "--in": IN },
  more: `Without an id, it takes back the last operation that is not undone, and asks first on a terminal if that is older than ten minutes; undo again goes further back. ${REFUSES} It then names the next older one, which undo takes by its id.`,
  async run(asking, given) {
    const params = await wanted(asking, given);
    const old = params.operationId === undefined ? await findOldOne(asking, params) : undefined;
    if (old !== undefined && (await asking.confirm(old.question)) === false)
      throw new Failure("cancelled", "Nothing was taken back.");
    let operationId = params.operationId ?? old?.operationId;
    for (;;)
      try {
        return await asking.ask("undo", { ...params, operationId });
      } catch (error) {
        // The operation has no way back, and the error names the one before it.
        if (!(error instanceof CommandFailed)) throw error;
        const { next } = (error.error.data ?? {}) as { next?: { operationId: string } };
        if (!next || !(await asking.confirm(`${error.message}\nUndo it now?`))) throw error;
        ({ operationId } = next);
      }
  },
  *print(result, _given, page) {
    const [it, them] = IN_TRASH.has(result.kind)
      ? ["It is in the trash now; ", "They are in the trash now; "]
      : ["", ""];
    yield* lines(result, page, [`${it}redo brings it back.`, `${them}redo brings them back.`]);
    const age = formatAge(page.now - Date.parse(result.at));
    if (age !== "now") yield `The change was made ${age} ago.`;
  },
  status,
});

export const redo = defineVerb({
  name: "redo",
  meaning: "bring back what undo took",
  operands: ["[id]"],
  flags: { "--in": IN },
  more: `Without an id, it repeats what undo took back last, if nothing was done since. ${REFUSES}`,
  run: async (asking, given) => asking.ask("redo", await wanted(asking, given)),
  print: (result, _given, page) => lines(result, page, ["undo takes it back again.", "undo takes them back again."]),
  status,
});

/** Returns the operation that undo takes back, and the question about it, if it is an old one. */
async function findOldOne({ ask, page }: VerbContext, session: object) {
  const { operations: found } = await ask("list_operations", { ...session, grouped: true });
  const last = found.find(({ kind, undoneBy }) => kind !== "undo" && kind !== "redo" && undoneBy === undefined);
  if (!last?.canUndo) return undefined;
  const { operationId, at, text } = last;
  const age = page().now - Date.parse(at);
  const question = show`The last change was made ${formatAge(age)} ago: ${text}\nUndo it now?`;
  return age < OLD ? undefined : { operationId, question };
}

async function wanted(asking: VerbContext, { operands: [operationId], flags }: VerbArguments) {
  const session = flags.get("--in");
  return { operationId, ...(session === undefined ? {} : await findRecordedSession(asking, session)) };
}

function status({ refused = [] }: ResultOf<"undo">): number {
  return refused.length > 0 ? FAILURE : OK;
}

/** Yields the outcome, and the failures within a group; `ways` name the way back for one and for several. */
function* lines(result: ResultOf<"undo">, page: OutputStyle, ways: readonly [string, string]): Generator<string> {
  const { text, sessionId, sessionPath, also, refused = [] } = result;
  yield escapeLine(text);
  if (also === undefined && sessionPath !== "")
    yield show`  ${sessionId.slice(0, ID)}  ${shortenPath(sessionPath, page.home)}`;
  for (const { sessionId, name, failure } of refused) {
    const title = name === null ? "" : ` ${escapeLine(name)}`;
    const sentence = show`${sessionId.slice(0, WHOLE_ID)}${title}: ${rewordAsVerbs(escapeLine(failure.message))}`;
    yield page.paint("yellow", `  ${sentence}`);
  }
  yield ways[also === undefined ? 0 : 1];
}
