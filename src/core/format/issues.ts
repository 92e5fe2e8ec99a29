/** Sentences about members that are missing or of the wrong kind, in place of those of the schemas' library. */

import type * as z from "zod";

/** Names of kinds of values, as the schemas call them. */
const KINDS: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "a boolean",
  array: "a list",
  object: "an object",
  record: "an object",
  null: "null",
};

/**
 * Checks of a schema before the library may compile code for it. That code takes up to 3 ms to make, and saves a twelfth of
 * an append of four entries in a young process: most schemas are used once or twice in a process.
 */
const CHECKS_BEFORE_CODE = 4;
const checks = new WeakMap<z.ZodType, number>();

/**
 * Checks a value by a schema. Returns the parsed value, or the issues with sentences of ours. Only an invalid value is
 * checked with the sentences: passing options to a check took 0.7 us more, of 3 us for a whole request.
 */
export function check<T>(schema: z.ZodType<T>, value: unknown): z.ZodSafeParseResult<T> {
  const count = checks.get(schema) ?? 0;
  if (count < CHECKS_BEFORE_CODE) checks.set(schema, count + 1);
  const result = count < CHECKS_BEFORE_CODE ? schema.safeParse(value, { jitless: true }) : schema.safeParse(value);
  return result.success ? result : schema.safeParse(value, { error: sentenceOf });
}

/** Returns the sentence about a member that is missing or of the wrong kind; undefined about any other issue. */
function sentenceOf(issue: z.core.$ZodRawIssue): string | undefined {
  const wanted = wantedBy(issue as Wanted);
  if (wanted === undefined) return sizeSentence(issue as Sized);
  const { input } = issue;
  if (input === undefined) return `is missing (${wanted})`;
  return issue.code === "invalid_type" ? `must be ${wanted}, not ${kindOf(input)}` : `must be ${wanted}`;
}

/** The members of an issue that describe the expected value. */
interface Wanted {
  readonly code?: string;
  readonly expected?: string;
  readonly values?: readonly unknown[];
  readonly errors?: readonly (readonly Wanted[])[];
}

/** The members of an issue that limit the length or the size of a value. */
interface Sized {
  readonly code?: string;
  readonly origin?: string;
  readonly minimum?: number | bigint;
  readonly maximum?: number | bigint;
  readonly inclusive?: boolean;
}

/** Returns the sentence about a list, text or number that is too short, long, small or large; undefined about anything else. */
function sizeSentence({ code, origin = "", minimum, maximum, inclusive }: Sized): string | undefined {
  if (origin === "number" || origin === "int") {
    if (code === "too_small") return inclusive ? `must be ${minimum} or more` : `must be more than ${minimum}`;
    if (code === "too_big") return inclusive ? `must be ${maximum} or less` : `must be less than ${maximum}`;
  }
  const [unit, units] = { array: ["item", "items"], string: ["character", "characters"] }[origin] ?? [];
  if (unit === undefined) return undefined;
  if (code === "too_small") return minimum === 1 ? "must not be empty" : `must have at least ${minimum} ${units}`;
  if (code === "too_big") return `must have at most ${maximum} ${maximum === 1 ? unit : units}`;
  return undefined;
}

function wantedBy({ code, expected = "", values = [], errors = [] }: Wanted): string | undefined {
  if (code === "invalid_type") return KINDS[expected];
  if (code === "invalid_value") return values.map((value) => JSON.stringify(value)).join(" or ");
  if (code !== "invalid_union") return undefined;
  const each = errors.map(([first]) => first && wantedBy(first));
  return each.length === 0 || each.includes(undefined) ? undefined : [...new Set(each)].join(" or ");
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  const kind = Array.isArray(value) ? "array" : typeof value;
  return KINDS[kind] ?? kind;
}
