/** What is explored: small worlds in the suite, larger ones in the soak run, and old behaviours that must be caught. */

import type { Mutation, World } from "./rule.ts";

const JSONL: World = { store: "jsonl", processes: 2, appends: 2, pairs: 1, failures: true };
const V2: World = { store: "v2", processes: 2, appends: 1, pairs: 1, failures: true };

const LOST = "what was acknowledged is lost";

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

const V2_TWICE: World = { ...V2, appends: 2, pairs: 0 };

export const MUTANTS: readonly Mutant[] = [
  { name: "cuts at the offset judged before the lock", world: JSONL, mutation: { oldVerdict: true, cutBlindly: true } },
  { name: "cuts at the offset judged before the lock", world: V2, mutation: { oldVerdict: true, cutBlindly: true } },
  {
    name: "has no more to take in while remains are set",
    world: V2,
    mutation: { remainsHideMore: true, cutBlindly: true },
  },
  { name: "reads the content first and takes the stamp afterwards", world: JSONL, mutation: { contentFirst: true } },
  { name: "reads the content first and takes the stamp afterwards", world: V2, mutation: { contentFirst: true } },
  { name: "does not compare when the lock is taken", world: JSONL, mutation: { noConfirm: true } },
  { name: "does not compare when the lock is taken", world: V2, mutation: { noConfirm: true } },
  {
    name: "rolls back without proof",
    world: { ...JSONL, appends: 1, pairs: 0, foreign: 1 },
    mutation: { rollBackBlindly: true },
    fault: LOST,
  },
  { name: "closes a torn tail with a line feed", world: JSONL, mutation: { seal: true } },
  { name: "closes a torn tail with a line feed", world: V2_TWICE, mutation: { seal: true } },
  { name: "lets the lock go before all is durable", world: V2, mutation: { releaseEarly: true } },
  {
    name: "does not look where its write came to lie",
    world: { ...JSONL, appends: 1, pairs: 0, foreign: 1 },
    mutation: { noLookAfter: true },
  },
  { name: "cuts at opening, without the lock", world: JSONL, mutation: { cutAtOpen: true } },
  { name: "cuts at opening, without the lock", world: V2, mutation: { cutAtOpen: true } },
  {
    name: "cuts rows that are longer than those it knows",
    world: V2,
    mutation: { noConfirm: true, rowsCutBlindly: true },
    fault: "the row of what was acknowledged is lost",
  },
  // How long it takes to what was seen: acknowledged entries that are gone.
  {
    name: "cuts at the offset judged before the lock",
    world: JSONL,
    mutation: { oldVerdict: true, cutBlindly: true },
    fault: LOST,
    isLarge: true,
  },
  {
    name: "cuts at the offset judged before the lock",
    world: V2,
    mutation: { oldVerdict: true, cutBlindly: true },
    fault: LOST,
    isLarge: true,
  },
  {
    name: "takes a whole frame with a number that is not due for a torn one",
    world: { ...V2_TWICE, lockFails: true },
    mutation: { wholeIsTorn: true },
    fault: LOST,
    isLarge: true,
  },
];

/** What alone does no harm, because the rest of the rule holds. */
export const HARMLESS: readonly Mutant[] = [
  { name: "cuts without proof", world: JSONL, mutation: { cutBlindly: true } },
  { name: "cuts without proof", world: V2, mutation: { cutBlindly: true, rowsCutBlindly: true } },
  { name: "lets the lock go before all is durable", world: JSONL, mutation: { releaseEarly: true } },
];

/** Returns a world in words. */
export function inWords(world: World): string {
  const { store, processes, appends, pairs, foreign = 0, lockFails, blind, failures } = world;
  return [
    store,
    `${processes} processes`,
    `${appends} ${appends === 1 ? "append" : "appends"}${pairs > 0 ? `, ${pairs} of two records` : ""}`,
    ...(foreign > 0 ? [`${foreign} by a program without a lock`] : []),
    ...(failures ? ["writes and syncs fail"] : []),
    ...(lockFails ? ["the lock fails"] : []),
    ...(blind ? ["stamps show nothing"] : []),
  ].join("; ");
}
