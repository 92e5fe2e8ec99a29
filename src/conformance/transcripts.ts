/**
 * Golden transcripts: conversations in files that can be read without this kit (docs/conformance.md says how), and the
 * rules that a server answers as they show.
 */

import type { Combination } from "./combination.ts";
import { isRecord, type WireValue } from "./dialect.ts";
import type { Rule, RuleContext, Theme } from "./rule.ts";
import { readTranscriptFiles } from "./transcript-files.ts";

/** One line of a transcript: a message, or a text that is not a message. */
type TranscriptStep = { readonly send: WireValue } | { readonly sendText: string } | { readonly receive: WireValue };

export interface Transcript {
  readonly name: string;
  readonly title: string;
  /** The heading in protocol.md that it is about. */
  readonly source: string;
  readonly dialect: Combination["dialect"];
  /** True if it begins with the start of a server, and not with any session that a server has open. */
  readonly fresh: boolean;
  readonly steps: readonly TranscriptStep[];
}

/** The values that the names in a transcript stand for, in the conversation that is held against it. */
export type StoodFor = Map<string, WireValue>;

/** A name in place of a value: the value where it comes first, and the same one everywhere else. */
const NAME = /^<[a-z]+(?:-\d+)?>$/;

/** Names that stand for any value of a kind, for another one at each place. */
const KINDS: Readonly<Record<string, (value: WireValue) => boolean>> = {
  "<any>": () => true,
  "<text>": (value) => typeof value === "string" && value !== "",
  "<number>": (value) => typeof value === "number",
  "<whole>": (value) => Number.isInteger(value),
  "<flag>": (value) => typeof value === "boolean",
  "<list>": (value) => Array.isArray(value),
  "<none>": (value) => value === undefined,
  "<time>": (value) => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/.test(String(value)),
};

export function loadTranscripts(): Transcript[] {
  return readTranscriptFiles()
    .filter(([name]) => name.endsWith(".jsonl"))
    .map(([name, text]) => transcriptOf(name.replace(/\.jsonl$/, ""), text));
}

/** Parses a file: its subject in the first line, and a step in each other. */
function transcriptOf(name: string, text: string): Transcript {
  const [about, ...steps] = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  return { name, ...about, steps };
}

/** Returns the rules that a server answers as the transcripts of the package show. */
export function makeTranscriptTheme(): Theme {
  const transcripts = loadTranscripts();
  if (transcripts.length === 0) throw new Error("There are no transcripts in the package. Install it again.");
  const rules = transcripts.map(
    (transcript): Rule => ({
      name: `transcript-${transcript.name}`,
      title: transcript.title,
      source: transcript.source,
      applies: ({ dialect }) => dialect === transcript.dialect,
      run: (context) => replay(context, transcript),
    }),
  );
  return { name: "transcripts", rules };
}

/** Sends what a transcript sends, and holds what comes against it. */
async function replay(context: RuleContext, { steps, fresh }: Transcript): Promise<void> {
  const conversation = fresh ? context.start() : await context.plain();
  if (fresh) conversation.holdAll();
  else await conversation.settle();
  const stoodFor: StoodFor = new Map();
  for (const step of steps) {
    if ("sendText" in step) conversation.send(step.sendText);
    else if ("send" in step) {
      const message = JSON.stringify(fillNames(step.send, stoodFor));
      // Ids begin with 1 in each transcript.
      if ("id" in step.send) conversation.expectReply(JSON.stringify(step.send.id), message);
      conversation.send(message);
    } else {
      const expected = JSON.stringify(fillNames(step.receive, stoodFor));
      const came = await conversation.next(expected);
      const difference = findDifference("", JSON.parse(came.text), step.receive, stoodFor);
      if (difference !== undefined) throw conversation.broken(`${expected} (${difference})`, came.text);
    }
  }
}

/**
 * Returns the first place where a value differs from the expected one. An object may have members that are not
 * expected. The replies of a batch may come in any order.
 */
export function findDifference(
  path: string,
  value: WireValue,
  expected: WireValue,
  stoodFor: StoodFor,
): string | undefined {
  const here = path === "" ? "the message" : path;
  if (typeof expected === "string" && NAME.test(expected)) {
    const isKind = KINDS[expected];
    if (isKind !== undefined) return isKind(value) ? undefined : `${here} is not ${expected}`;
    if (!stoodFor.has(expected)) stoodFor.set(expected, value);
    return stoodFor.get(expected) === value ? undefined : `${here} is not ${expected}, as before`;
  }
  if (Array.isArray(expected)) {
    if (!Array.isArray(value) || value.length !== expected.length) return `${here} is not a list of ${expected.length}`;
    const inOrder = path === "" ? inOrderOf(value, expected) : value;
    return firstOf(expected.map((item, at) => () => findDifference(`${path}[${at}]`, inOrder[at], item, stoodFor)));
  }
  if (isRecord(expected)) {
    if (!isRecord(value)) return `${here} is not an object`;
    return firstOf(
      Object.entries(expected).map(([name, item]) => () => {
        const inside = path === "" ? name : `${path}.${name}`;
        if (!(name in value) && item !== "<none>") return `${inside} is missing`;
        return findDifference(inside, value[name], item, stoodFor);
      }),
    );
  }
  return value === expected ? undefined : `${here} is not ${JSON.stringify(expected)}`;
}

function firstOf(looks: readonly (() => string | undefined)[]): string | undefined {
  for (const look of looks) {
    const difference = look();
    if (difference !== undefined) return difference;
  }
  return undefined;
}

/** Returns the replies of a batch in the order of the ids that are expected. */
function inOrderOf(replies: readonly WireValue[], expected: readonly WireValue[]): WireValue[] {
  const left = [...replies];
  return expected.map(({ id }) => {
    const at = left.findIndex((reply) => reply?.id === id);
    return left.splice(Math.max(0, at), 1)[0];
  });
}

/** Returns a value with what its names stand for, as far as that is known. */
export function fillNames(value: WireValue, stoodFor: StoodFor): WireValue {
  if (typeof value === "string") return stoodFor.get(value) ?? value;
  if (Array.isArray(value)) return value.map((item) => fillNames(item, stoodFor));
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, fillNames(item, stoodFor)]));
}
