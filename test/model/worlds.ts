/** The explored systems: small worlds in the suite, larger ones in the soak run, and old behaviours to be caught. */

import type { Mutation, World } from "./rule.ts";

const JSONL: World = { store: "jsonl", processes: 2, appends: 2, pairs: 1, failures: true };
const V2: World = { store: "v2", processes: 2, appends: 1, pairs: 1, failures: true };

const LOST = "an acknowledged record is lost";
const ROW_LOST = "the row of an acknowledged record is lost";

export const SMALL: readonly World[] = [{ ...JSONL, pairs: 0 }, V2];

export const LARGE: readonly World[] = [
  JSONL,
  { ...JSONL, appends: 3 },
  { ...JSONL, processes: 3 },
  { ...JSONL, processes: 4, appends: 1 },
  { ...JSONL, processes: 3, blind: true },
  { ...JSONL, foreign: 1 },
  { ...JSONL, lockFails: true },
  { ...V2, appends: 2 },
  { ...V2, appends: 3, pairs: 0 },
  { ...V2, processes: 3 },
  { ...V2, processes: 3, appends: 2, pairs: 0 },
  { ...V2, processes: 4, pairs: 0 },
  { ...V2, processes: 3, blind: true },
  { ...V2, appends: 2, pairs: 0, lockFails: true },
];

export interface Mutant {
  readonly name: string;
  readonly world: World;
  readonly mutation?: Mutation;
  /** Takes too many states for the suite. */
  readonly isLarge?: boolean;
  /** The fault to be found; any, where it is left out. */
  readonly fault?: string;
}

const mutant = (name: string, world: World, mutation: Mutation, fault?: string, isLarge = false): Mutant => ({
  ...{ name, world, mutation, fault, isLarge },
});

/** The same for worlds of both stores. */
const inBoth = (name: string, mutation: Mutation, v2 = V2): Mutant[] =>
  [JSONL, v2].map((world) => mutant(name, world, mutation));

const V2_TWICE: World = { ...V2, appends: 2, pairs: 0 };
const WITH_FOREIGN: World = { ...JSONL, appends: 1, pairs: 0, foreign: 1 };
const EARLY_CUT = ["cuts at the offset judged before the lock", { oldVerdict: true, cutBlindly: true }] as const;

export const MUTANTS: readonly Mutant[] = [
  ...inBoth(...EARLY_CUT),
  mutant("has no more to take in while remains are set", V2, { tornHidesMore: true, cutBlindly: true }),
  ...inBoth("reads the content first and takes the stamp afterwards", { contentFirst: true }),
  ...inBoth("does not compare when the lock is taken", { noConfirm: true }),
  mutant("rolls back without proof", WITH_FOREIGN, { rollBackBlindly: true }, LOST),
  ...inBoth("closes a torn tail with a line feed", { seal: true }, V2_TWICE),
  mutant("lets the lock go before all is durable", V2, { releaseEarly: true }),
  mutant("does not look where its write came to lie", WITH_FOREIGN, { noLookAfter: true }),
  ...inBoth("cuts at opening, without the lock", { cutAtOpen: true }),
  mutant("cuts rows that are longer than those it knows", V2, { noConfirm: true, rowsCutBlindly: true }, ROW_LOST),
  // Large worlds reach the observed fault: acknowledged entries that are gone.
  ...inBoth(...EARLY_CUT).map((each) => ({ ...each, fault: LOST, isLarge: true })),
  mutant(
    "takes a whole frame with a number that is not due for a torn one",
    { ...V2_TWICE, lockFails: true },
    { wholeIsTorn: true },
    LOST,
    true,
  ),
];

/** Mutants that alone do no harm, because the rest of the rule holds. */
export const HARMLESS: readonly Mutant[] = [
  mutant("cuts without proof", JSONL, { cutBlindly: true }),
  mutant("cuts without proof", V2, { cutBlindly: true, rowsCutBlindly: true }),
  mutant("lets the lock go before all is durable", JSONL, { releaseEarly: true }),
];

/** Returns a world in words. */
export function inWords(world: World): string {
  const { store, processes, appends, pairs, foreign = 0, lockFails, blind, failures } = world;
  return [
    store,
    `${processes} processes`,
    `${appends} ${appends === 1 ? "append" : "appends"}${pairs > 0 ? `, ${pairs} of two records` : ""}`,
    ...(foreign > 0 ? [`${foreign} by a program without a lock`] : []),
    ...(failures ? [] : ["nothing fails"]),
    ...(lockFails ? ["the lock fails"] : []),
    ...(blind ? ["stamps show nothing"] : []),
  ].join("; ");
}
