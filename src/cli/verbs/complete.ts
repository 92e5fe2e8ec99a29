import { type Flag, OPTIONS } from "../options.ts";
import { openNamedSession } from "../sessions.ts";
import { cutTo, escapeLine, formatAge, show } from "../terminal/text.ts";
import type { Verb, VerbContext } from "../verb.ts";

/** A word that the shell may insert, and its description. */
type Offer = readonly [value: string, text: string];

/** Most offers: more are unreadable, and the first are the latest. */
const MOST = 200;
/** Most sessions that are read: fifty take 20 ms. */
const MOST_SESSIONS = 50;
/** Columns of a text. */
const TEXT = 60;
/** Characters of an id at least. */
const LEAST_OF_ID = 8;

/** First lines that leave the rest to the shell. */
const DIRECTORIES = ":dirs";
const FILES = ":files";

/**
 * Returns the verb that the completion scripts call with the words up to the cursor. It prints a line for each offer:
 * the word, a tab, a text. Neither has a character that a terminal or a shell obeys, and the scripts evaluate nothing.
 */
export function defineComplete(find: (name: string) => Verb | undefined): Verb {
  return {
    name: "complete",
    meaning: "print what a word of a command line can be",
    operands: ["[words...]"],
    // A key that was pressed changes nothing.
    serverOptions: ["--read-only"],
    argsOf: (args) => [...foldersIn(args), "--", ...(args[0] === "--" ? args.slice(1) : args)],
    async run(asking, { operands }) {
      const [name = "", ...words] = operands.map(unquoted);
      const verb = find(name);
      const word = words.pop() ?? "";
      if (verb === undefined) return { lines: [] };
      return { lines: await linesFor(asking, placeOf(verb, words), word).catch(nothing) };
    },
    isExact: () => true,
    print: ({ lines }) => lines,
  };
}

/** Completion has nothing to say about what fails: the verb itself will. */
function nothing(error: unknown): string[] {
  if (error instanceof Error) return [];
  throw error;
}

/** Returns the options among the words that decide where sessions are, for this run, too. */
function foldersIn(words: readonly string[]): string[] {
  for (const [i, word] of words.entries()) {
    const [, inline] = /^--session-dir=(.*)$/.exec(word) ?? [];
    const folder = inline ?? (word === "--session-dir" ? words[i + 1] : undefined);
    const isLast = inline === undefined ? i + 2 >= words.length : i + 1 === words.length;
    if (folder !== undefined && folder !== "" && !isLast) return ["--session-dir", withHome(unquoted(folder))];
  }
  return [];
}

function withHome(path: string): string {
  return path.replace(/^~(?=\/|$)/, () => process.env.HOME ?? "~");
}

/** Returns a word without the quotes and backslashes of a shell. Nothing in it is evaluated. */
function unquoted(word: string): string {
  return word.replace(/\\(.)|'([^']*)'?|"((?:[^"\\]|\\.)*)"?/g, (all, escaped, single, double) => {
    if (escaped !== undefined) return escaped;
    return single ?? double?.replace(/\\(["\\$`])/g, "$1") ?? all;
  });
}

/** The place of a word: the operand or the option's value that it is, and the operands before it. */
interface WordPlace {
  readonly verb: Verb;
  readonly kind: string;
  readonly before: readonly string[];
}

function placeOf(verb: Verb, words: readonly string[]): WordPlace {
  const before: string[] = [];
  let value: string | undefined;
  for (const word of words) {
    if (value !== undefined) value = undefined;
    else if (word.startsWith("-")) value = word.includes("=") ? undefined : valueKind(optionOf(verb, word));
    else before.push(word);
  }
  const { operands } = verb;
  const last = operands.at(-1) ?? "";
  const operand = operands[before.length] ?? (last.includes("...") ? last : "");
  return { verb, before, kind: value ?? operand.replace(/[<>[\].]/g, "") };
}

function optionOf(verb: Verb, name: string): Flag | undefined {
  return verb.flags?.[name] ?? OPTIONS.find(({ names }) => names.includes(name));
}

function valueKind(flag: Flag | undefined): string | undefined {
  return flag?.value === "id" ? "entry" : flag?.value;
}

async function linesFor(asking: VerbContext, { verb, kind, before }: WordPlace, word: string): Promise<string[]> {
  if (kind === "dir") return [DIRECTORIES];
  if (kind === "file" || /^[./~]|\//.test(word)) return [FILES];
  const offers = await offersOf(asking, verb, kind, before, word);
  return offers
    .filter(([value]) => value.startsWith(word) && value !== "" && show`${value}` === value)
    .slice(0, MOST)
    .map(([value, text]) => `${value}\t${cutTo(escapeLine(text), TEXT)}`);
}

function offersOf(
  asking: VerbContext,
  verb: Verb,
  kind: string,
  before: readonly string[],
  word: string,
): Promise<readonly Offer[]> | readonly Offer[] {
  if (kind === "session") return verb.name === "restore" ? trash(asking) : sessions(asking, verb, word);
  if (["entry", "a", "b"].includes(kind)) return entries(asking, before[0]);
  if (kind === "operation" || kind === "id") return operations(asking);
  return [];
}

function sessions({ service, page }: VerbContext, { name }: Verb, word: string): Offer[] {
  const others = word === "" ? "listed" : "both";
  const { candidates, ids } = service.offered(word, MOST_SESSIONS, name === "unarchive" ? "archived" : others);
  const { now } = page();
  return candidates.map(({ sessionId, name, firstMessage, modified }) => {
    const age = modified === null ? "" : formatAge(now - Date.parse(modified));
    const said = name ?? firstMessage ?? "(nothing said)";
    return [shortId(sessionId, ids, word.length), age === "" ? said : `${age} ${said}`];
  });
}

/** Returns the shortest distinct beginning of an id, at least the typed part. */
function shortId(id: string, sorted: readonly string[], least: number): string {
  let length = Math.max(LEAST_OF_ID, least);
  const at = indexOf(sorted, id);
  for (const other of [sorted[at - 1], sorted[at + 1]]) {
    if (other === undefined || other === id) continue;
    let same = 0;
    while (same < id.length && id[same] === other[same]) same++;
    length = Math.max(length, same + 1);
  }
  return id.slice(0, length);
}

function indexOf(sorted: readonly string[], id: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < id) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns labels, then what the user said, the latest first. */
async function entries(asking: VerbContext, session: string | undefined): Promise<Offer[]> {
  if (session === undefined) return [];
  await openNamedSession(asking, session);
  const { nodes = [] } = await asking.ask("get_tree", { format: "flat" });
  const latest = [...nodes].reverse();
  const labels = latest.flatMap(({ label, id, preview }): Offer[] =>
    label === undefined ? [] : [[label, `${id}  ${preview ?? ""}`]],
  );
  const said = latest.flatMap(({ role, id, preview }): Offer[] => (role === "user" ? [[id, preview ?? ""]] : []));
  return [...labels, ...said];
}

async function operations({ ask }: VerbContext): Promise<Offer[]> {
  const { operations: done } = await ask("list_operations", { limit: MOST });
  return done.map(({ operationId, text }): Offer => [operationId, text]);
}

async function trash({ ask }: VerbContext): Promise<Offer[]> {
  const { items } = await ask("list_trash");
  return items.map(({ sessionId, name, sessionPath }): Offer => [sessionId ?? "", name ?? sessionPath]);
}
