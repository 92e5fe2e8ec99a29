import { findBeginningAmong, NOTHING_SAID } from "../../core/search/listing.ts";
import { type Flag, OPTIONS, type Option } from "../options.ts";
import { openNamedSession } from "../sessions.ts";
import { cutTo, escapeLine, formatAge, shortenId, show } from "../terminal/text.ts";
import { COMMON_FLAGS, type Verb, type VerbContext } from "../verb.ts";

/** A word that the shell may insert, and its description. */
type Offer = readonly [value: string, text: string];

/** Most offers: more are unreadable, and the first are the latest. */
const MOST = 200;
/** Most sessions that are read: fifty take 20 ms. */
const MOST_SESSIONS = 50;
/** Columns of a text. */
const TEXT = 60;

/** First lines that leave the rest to the shell. */
const DIRECTORIES = ":dirs";
const FILES = ":files";

/**
 * Returns the verb that the completion scripts call with the words up to the cursor. It prints a line for each offer:
 * the word, a tab, a text. Neither has a character that a terminal or a shell obeys, and the scripts evaluate nothing.
 */
export function defineComplete(verbs: () => readonly Verb[]): Verb {
  return {
    name: "complete",
    meaning: "print what a word of a command line can be",
    operands: ["[words...]"],
    // A key that was pressed changes nothing.
    serverOptions: ["--read-only"],
    argsOf: (args) => [...foldersIn(args), "--", ...(args[0] === "--" ? args.slice(1) : args)],
    async run(asking, { operands }) {
      const words = operands.map(unquoted);
      const last = words.pop() ?? "";
      // Bash makes three words of `--flag=value`, and inserts the last of them; other shells insert the whole.
      const [, before = "", word = last === "=" ? "" : last] = /^(--?[\w-]+=)(.*)$/s.exec(last) ?? [];
      const place = placeOf(verbs(), before === "" ? words : [...words, before.slice(0, -1)]);
      const lines = await linesFor(asking, place, verbs(), word).catch(nothing);
      return { lines: before === "" ? lines : lines.map((line) => (line.startsWith(":") ? line : before + line)) };
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

/** The place of a word: its verb, the operand or the option's value that it is, and the operands before it. */
interface WordPlace {
  readonly verb: Verb | undefined;
  readonly options: readonly Option[];
  /** The kind of the operand or the value; undefined for the first word. */
  readonly kind: string | undefined;
  /** Its values, where they can be listed. */
  readonly oneOf: readonly string[];
  /** True if it is the value of the option before it. */
  readonly isValue: boolean;
  readonly before: readonly string[];
}

function placeOf(verbs: readonly Verb[], words: readonly string[]): WordPlace {
  const named = verbs.find(({ name, aliases = [] }) => [name, ...aliases].includes(words[0]));
  const subverb = named?.subverbs?.find(({ name }) => name === `${named.name} ${words[1]}`);
  const verb = subverb ?? named;
  const options = optionsOf(verb);
  const before: string[] = [];
  let option: Option | undefined;
  for (const word of words.slice(subverb ? 2 : named ? 1 : 0)) {
    if (word === "=") continue;
    if (option?.value !== undefined) option = undefined;
    else if (word.startsWith("-")) option = word.includes("=") ? undefined : findOption(options, word);
    else before.push(word);
  }
  if (option?.value !== undefined) return { verb, options, before, isValue: true, ...valuesOf(option) };
  const operands = verb?.takesCommand ? [] : (verb?.operands ?? []);
  const last = operands.at(-1) ?? "";
  const operand = operands[before.length] ?? (last.includes("...") ? last : "");
  const kind = words.length === 0 ? undefined : operand.replace(/[<>[\].]/g, "");
  return { verb, options, before, isValue: false, kind, oneOf: kind?.includes("|") ? kind.split("|") : [] };
}

/** Returns the options that a verb offers, or the server without one. */
function optionsOf(verb: Verb | undefined): readonly Option[] {
  if (verb === undefined) return OPTIONS;
  const flags = Object.assign({}, ...[verb, ...(verb.subverbs ?? [])].map((one) => one.flags));
  const own = Object.entries<Flag>({ ...flags, ...COMMON_FLAGS, ...flags });
  const shared = OPTIONS.filter(({ names: [name] }) => name === "--session-dir" && !verb.takesCommand);
  const help = { names: ["--help"], meaning: "print its help" };
  return [...own.map(([name, flag]) => ({ names: [name], ...flag })), help, ...shared];
}

function findOption(options: readonly Option[], name: string): Option | undefined {
  return [...options, ...OPTIONS].find(({ names }) => names.includes(name));
}

function valuesOf({ names, value = "", oneOf }: Option): { kind: string; oneOf: readonly string[] } {
  const listed = value.includes("|") ? value.split("|").filter((word) => /^[a-z0-9]+$/.test(word)) : [];
  return { kind: names.includes("--entry") ? "entry" : value, oneOf: oneOf ?? listed };
}

async function linesFor(
  asking: VerbContext,
  place: WordPlace,
  verbs: readonly Verb[],
  word: string,
): Promise<string[]> {
  const { kind = "", options, isValue } = place;
  const isOption = word.startsWith("-") && !isValue;
  if (!isOption && kind.includes("dir")) return [DIRECTORIES];
  if (!isOption && (/path|file|folder/.test(kind) || /^[./~]|\//.test(word))) return [FILES];
  const hasFlags = isOption || (word === "" && place.kind === "");
  const offers = hasFlags ? flagsOf(options) : await offersOf(asking, place, verbs, word);
  return offers
    .filter(([value]) => value.startsWith(word) && value !== "" && show`${value}` === value)
    .slice(0, MOST)
    .map(([value, text]) => `${value}\t${cutTo(escapeLine(text), TEXT)}`);
}

function flagsOf(options: readonly Option[]): Offer[] {
  return options.flatMap(({ names, meaning }) => names.map((name): Offer => [name, meaning]));
}

function namesOf(verbs: readonly Verb[]): Offer[] {
  return verbs.flatMap(({ name, aliases = [], meaning }) => [name, ...aliases].map((one): Offer => [one, meaning]));
}

function offersOf(
  asking: VerbContext,
  { verb, kind, oneOf, before }: WordPlace,
  verbs: readonly Verb[],
  word: string,
): Promise<readonly Offer[]> | readonly Offer[] {
  if (oneOf.length > 0) return oneOf.map((value): Offer => [value, ""]);
  if (kind === undefined) return [...namesOf(verbs), ...(word === "" ? flagsOf(OPTIONS) : [])];
  if (kind === "verb") return namesOf(verbs);
  if (verb?.subverbs && before.length === 0)
    return verb.subverbs.map(({ name, meaning }): Offer => [name.slice(verb.name.length + 1), meaning]);
  if (kind === "session" && verb) return verb.name === "restore" ? trash(asking) : sessionsOrNames(asking, verb, word);
  if (["entry", "a", "b"].includes(kind)) return entries(asking, before[0]);
  if (kind === "operation" || kind === "id") return operations(asking);
  return [];
}

/** Returns ids or, if none begins with the word, names of sessions. */
async function sessionsOrNames(asking: VerbContext, verb: Verb, word: string): Promise<Offer[]> {
  const found = sessions(asking, verb, word);
  if (found.length > 0 || word === "") return found;
  const archived = verb.name === "unarchive" ? true : undefined;
  const { found: named } = await asking.service.catalog.list({ named: true, archived });
  return named.map(({ id, name }): Offer => [name ?? "", shortenId(id)]);
}

function sessions({ service, page }: VerbContext, { name }: Verb, word: string): Offer[] {
  const others = word === "" ? "listed" : "both";
  const { candidates, ids } = service.offered(word, MOST_SESSIONS, name === "unarchive" ? "archived" : others);
  const { now } = page();
  return candidates.map(({ sessionId, name, firstMessage, modified }) => {
    const age = modified === null ? "" : formatAge(now - Date.parse(modified));
    const said = name ?? firstMessage ?? NOTHING_SAID;
    const beginning = findBeginningAmong(sessionId, ids);
    return [sessionId.slice(0, Math.max(word.length, beginning.length)), age === "" ? said : `${age} ${said}`];
  });
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
