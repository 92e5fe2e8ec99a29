/** Rules as rows: the entries of a session, the requests, and the expected replies. */

import type { Conversation } from "./conversation.ts";
import { isRecord, type Params, type WireValue } from "./dialect.ts";
import type { Rule, RuleContext, Theme } from "./rule.ts";
import { makeTurns } from "./steps.ts";

/**
 * A command, its params, and the expected result: names stand for values, and members that are not expected may be
 * there. Without it, the command must succeed.
 */
export type RowStep = readonly [command: string, params?: Params | string, expected?: WireValue];

export interface RuleRow extends Omit<Rule, "run"> {
  /** The conversation: one that other rules use too, or the rule's own server. */
  readonly on?: "plain" | "hooked" | "modest" | "own";
  /** The turns of a new session, whose entries are `<entry-1>` and so on; without them, any session is current. */
  readonly given?: readonly string[];
  readonly steps?: readonly RowStep[];
  /** A check that steps cannot express. `ids` belong to the given entries. */
  check?(conversation: Conversation, ids: string[], context: RuleContext): Promise<void>;
}

/** The names, and the number of JSON-RPC, of an expected failure. */
class ExpectedFailure {
  readonly names: readonly (string | number)[];
  constructor(names: readonly (string | number)[]) {
    this.names = names;
  }
}

/** A whole expected message, where the result alone is not enough. */
class WholeMessage {
  readonly expected: WireValue;
  constructor(expected: WireValue) {
    this.expected = expected;
  }
}

/** Returns the expectation that a command fails with one of these names, and with the number if one is among them. */
export function fails(...names: readonly (string | number)[]): ExpectedFailure {
  return new ExpectedFailure(names);
}

/** Returns the expectation of a reply with everything around its result. */
export function wholly(expected: WireValue): WholeMessage {
  return new WholeMessage(expected);
}

/** Returns the expectation of values with these ids, and no others. */
export function withIds(...ids: readonly string[]): WireValue[] {
  return ids.map((id) => ({ id }));
}

/** Makes a theme of rows and rules. */
export function defineTheme(name: string, rows: readonly (RuleRow | Rule)[], applies?: Rule["applies"]): Theme {
  const rules = rows.map((row) => ("run" in row ? row : toRule(row)));
  return { name, rules: applies === undefined ? rules : rules.map((rule) => ({ ...rule, applies })) };
}

function toRule({ on = "plain", given, steps = [], check, ...about }: RuleRow): Rule {
  return {
    ...about,
    async run(context) {
      const conversation = on === "own" ? context.start() : await context[on]();
      const ids = given === undefined ? [] : await makeTurns(conversation, ...given);
      const names: StoodFor = new Map(ids.map((id, n) => [`<entry-${n + 1}>`, id]));
      for (const step of steps) await takeStep(conversation, step, names);
      await check?.(conversation, ids, context);
    },
  };
}

async function takeStep(conversation: Conversation, step: RowStep, names: StoodFor): Promise<void> {
  const [command, params, expected = "<any>"] = step;
  const reply = await conversation.ask(command, typeof params === "string" ? params : fillNames(params, names));
  if (expected instanceof ExpectedFailure) return reply.mustFail(...expected.names);
  const [value, pattern] =
    expected instanceof WholeMessage ? [reply.received.value, expected.expected] : [reply.result, expected];
  const difference = findDifference("", value, pattern, names);
  if (difference !== undefined) throw reply.broken(`${JSON.stringify(fillNames(pattern, names))} (${difference})`);
}

// --- expected values ---------------------------------------------------------------------------------------------

/** The values that names stand for, in one conversation. */
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
};

/**
 * Returns the first place where a value differs from the expected one. An object may have members that are not
 * expected.
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
    return firstOf(expected.map((item, at) => () => findDifference(`${path}[${at}]`, value[at], item, stoodFor)));
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

/** Returns a value with what its names stand for, as far as that is known. */
export function fillNames(value: WireValue, stoodFor: StoodFor): WireValue {
  if (typeof value === "string") return stoodFor.get(value) ?? value;
  if (Array.isArray(value)) return value.map((item) => fillNames(item, stoodFor));
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, fillNames(item, stoodFor)]));
}
