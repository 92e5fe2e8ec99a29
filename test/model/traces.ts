/** Traces of the model to be run: long ones at random, and those that lead to states chosen at random. */

import type { Random } from "../support/random.ts";
import type { Explored, System } from "./explorer.ts";
import { type Mutation, ruleOf, type State, type World } from "./rule.ts";

/** Chance of a step in a walk where others are possible. */
const SELDOM: Record<string, number> = { die: 0.12, full: 0.3, "not synced": 0.3, release: 0.5, "F append": 0.3 };

/** Returns the names of so many steps, each chosen among those that are possible. */
export function walk(world: World, random: Random, length: number, mutation?: Mutation): string[] {
  const system: System<State> = ruleOf(world, mutation);
  let state = system.initial;
  const trace: string[] = [];
  while (trace.length < length) {
    const steps = [...system.steps(state)];
    if (steps.length === 0) break;
    const weights = steps.map(([name]) => SELDOM[name.slice(2)] ?? SELDOM[name] ?? 1);
    let at = random.next() * weights.reduce((sum, weight) => sum + weight, 0);
    let chosen = 0;
    while (chosen < steps.length - 1 && at >= weights[chosen]) at -= weights[chosen++];
    trace.push(steps[chosen][0]);
    state = steps[chosen][1];
  }
  return trace;
}

/** Returns shortest traces to states that were explored, chosen at random. */
export function sample(explored: Explored<unknown>, random: Random, count: number): string[][] {
  return Array.from({ length: count }, () => explored.traceTo(random.int(explored.states)));
}

const steps = (text: string): string[] => text.split(", ");

/** Traces that lost something, or left a session that could not be written, when they were first run. */
export const FOUND: Readonly<Record<string, readonly string[]>> = {
  "a log is opened in the middle of another's append of two, which is then acknowledged": steps(
    "P open, P opened, P lock, P confirm, P append 2, P write, P write, Q open, Q opened, P write, P write, P written, P commit, P synced records, P write row, P write row, P write row, P write row, P rows written, P synced, P release",
  ),
  "a log is opened when nobody writes yet and read in the middle of another's append": steps(
    "P open, P opened, Q open, P lock, P confirm, P append 1, P write, Q opened, P write, P written, P commit, P synced records, P write row, P write row, P rows written, P synced, P die",
  ),
  "two open what a dead writer left, and one after the other appends": steps(
    "P open, P opened, P lock, P confirm, P append 2, P write, P die, Q open, Q opened, P open, P opened",
  ),
  "the same with a whole record of two": steps(
    "P open, P opened, P lock, P confirm, P append 2, P write, P write, P die, Q open, Q opened, P open, P opened",
  ),
  "a log is opened in the middle of an append whose writer dies": steps(
    "P open, P opened, P lock, P confirm, P append 2, P write, Q open, Q opened, P die",
  ),
  "a log looks in the middle of an append whose writer dies": steps(
    "P open, P opened, Q open, Q opened, P lock, P confirm, P append 2, P write, P write, Q look, Q looked, P write, P die",
  ),
  "a log looks after such a death, and another cuts and writes more": steps(
    "P open, P opened, Q open, Q opened, Q lock, Q confirm, Q append 2, Q write, Q write, Q die, P look, P looked, Q open, Q opened, Q lock, Q confirm, Q cut, Q append 2, Q write, Q write, Q write, Q write, Q written, Q commit, Q synced records, Q write row, Q write row, Q write row, Q write row, Q rows written, Q synced, Q release",
  ),
  "another appends while a log looks": steps(
    "P open, P opened, Q open, Q opened, P lock, P confirm, P append 1, P write, P write, P written, P commit, P synced records, P write row, P write row, P rows written, P synced, Q look, P append 1, P write, P write, P written, P commit, P synced records, P write row, P write row, P rows written, P synced, Q looked",
  ),
  "another, who holds the lock, appends while a log is opened": steps(
    "P open, P opened, P lock, P confirm, P append 1, P write, P write, P written, P commit, P synced records, P write row, P write row, P rows written, P synced, Q open, P append 1, P write, P write, P written, P commit, P synced records, P write row, P write row, P rows written, P synced, Q opened",
  ),
  "a writer dies when all of its records are there": steps(
    "P open, P opened, Q open, Q opened, P lock, P confirm, P append 2, P write, P write, P write, P write, P die",
  ),
};
