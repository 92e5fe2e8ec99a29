/** Comparison of two ends of a session: their last common row, and the work of each since then. */

import { NONE, type TreeModel, type TreeRow } from "./model.ts";

/** A branch after the common ancestor. */
export interface ComparedEnd {
  readonly end: number;
  readonly rows: readonly number[];
  readonly users: number;
  readonly answers: number;
  readonly calls: number;
  readonly failures: number;
  readonly tools: readonly (readonly [name: string, calls: number, failures: number])[];
  readonly models: readonly string[];
  readonly read: readonly string[];
  readonly changed: readonly string[];
  readonly tokens: number;
  readonly cost: number;
  /** Seconds from the first to the last entry. */
  readonly seconds: number;
  /** The rows that say something. */
  readonly said: readonly number[];
}

/** Returns the last row that two paths share, or NONE, and their sides. */
export function compareBranches(
  model: TreeModel,
  a: number,
  b: number,
): { common: number; branches: [ComparedEnd, ComparedEnd] } {
  const [left, right] = [model.path(a), model.path(b)];
  let past = 0;
  while (past < left.length && left[past] === right[past]) past++;
  return {
    common: past > 0 ? left[past - 1] : NONE,
    branches: [summarizeBranch(model, a, left.slice(past)), summarizeBranch(model, b, right.slice(past))],
  };
}

function summarizeBranch(model: TreeModel, end: number, indexes: readonly number[]): ComparedEnd {
  const rows = indexes.map((index) => model.rows[index]);
  const tools = new Map<string, [string, number, number]>();
  const toolOf = (name: string): [string, number, number] => {
    const known = tools.get(name) ?? [name, 0, 0];
    tools.set(name, known);
    return known;
  };
  for (const { kind, more } of rows) {
    for (const [name] of more.c ?? []) toolOf(name)[1]++;
    if (kind === "r" && more.f) toolOf(more.n ?? "")[2]++;
  }
  const changed = new Set(rows.flatMap((row) => filesOf(row, "w", ["write", "edit"])));
  const read = new Set(rows.flatMap((row) => filesOf(row, "r", ["read"])).filter((path) => !changed.has(path)));
  const list = [...tools.values()].sort((x, y) => y[1] - x[1] || (x[0] < y[0] ? -1 : 1));
  const times = rows.map(({ time }) => time).filter((time) => time > 0);
  const sum = (member: number): number => rows.reduce((all, { more }) => all + (more.u?.[member] ?? 0), 0);
  return {
    end,
    rows: indexes,
    users: rows.filter(({ kind }) => kind === "u").length,
    answers: rows.filter(({ kind }) => kind === "a").length,
    calls: list.reduce((all, [, calls]) => all + calls, 0),
    failures: list.reduce((all, [, , failures]) => all + failures, 0),
    tools: list,
    models: [...new Set(rows.flatMap(({ more }) => more.m ?? []))],
    read: [...read].sort(),
    changed: [...changed].sort(),
    tokens: sum(0),
    cost: sum(1),
    seconds: times.length === 0 ? 0 : Math.max(0, times[times.length - 1] - times[0]),
    said: indexes.filter((index) => says(model.rows[index])),
  };
}

/** Returns files that the row lists, or that its calls of these tools name. */
function filesOf({ more }: TreeRow, list: "r" | "w", tools: readonly string[]): readonly string[] {
  if (more.r || more.w) return more[list] ?? [];
  return (more.c ?? []).flatMap(([name, argument]) => (tools.includes(name) && argument !== "" ? [argument] : []));
}

/** Returns whether an entry says something to people: output of tools does where they failed. */
function says({ kind, more, text }: TreeRow): boolean {
  if (kind === "r") return more.f === 1;
  return "uabxcsm".includes(kind) && (text !== "" || more.c !== undefined);
}
