/** Words for entries, as the tree and the bar of the path have them. */

import { NONE, type TreeModel, type TreeRow } from "./model.ts";
import { toLocalTime } from "./times.ts";

/** Names of the kinds of entries. */
export const KIND_NAMES: Readonly<Record<TreeRow["kind"], string>> = {
  u: "You",
  a: "Assistant",
  r: "Result",
  b: "You ran",
  x: "Message",
  c: "Compaction",
  s: "Branch summary",
  l: "Label",
  n: "Name",
  m: "Model",
  t: "Thinking",
  o: "Entry",
};

export function describeSpeaker({ kind, text, more }: TreeRow): { readonly who: string; readonly words: string } {
  if (kind === "r") return { who: more.n ?? "result", words: text };
  if (kind === "a" && text === "" && more.c) return { who: "", words: formatRowCalls(more.c) };
  if (kind === "a") return { who: "", words: text || "(nothing said)" };
  return { who: kind === "u" ? "" : KIND_NAMES[kind].toLowerCase(), words: text };
}

export function formatRowCalls(calls: NonNullable<TreeRow["more"]["c"]>): string {
  return calls.map(([name, argument]) => `${name} ${argument}`.trim()).join(", ");
}

/** Returns what a folded stretch did: the tools by how often they were called, and how many calls failed. */
export function describeStretch(
  model: TreeModel,
  rows: readonly number[],
): { readonly words: string; readonly failed: number } {
  const tools = new Map<string, number>();
  let failed = 0;
  for (const row of rows) {
    const { more } = model.rows[row];
    for (const [name] of more.c ?? []) tools.set(name, (tools.get(name) ?? 0) + 1);
    if (more.f) failed++;
  }
  const calls = rows.flatMap((row) => model.rows[row].more.c ?? []);
  if (calls.length === 1 && rows.length === 2) return { words: formatRowCalls(calls), failed };
  const list = [...tools].sort((a, b) => b[1] - a[1]).map(([name, count]) => (count > 1 ? `${name} ×${count}` : name));
  return { words: `${rows.length} steps${list.length > 0 ? `: ${list.slice(0, 5).join(", ")}` : ""}`, failed };
}

/** Returns a time as the page writes them. */
export function formatTime(time: number): string {
  if (time === 0) return "";
  const { day, time: clock } = toLocalTime(new Date(time * 1000));
  return `${day} ${clock}`;
}

/** Returns an entry by its first words, for sentences about it. */
export function getRowName(model: TreeModel, row: number): string {
  if (row === NONE) return "the beginning";
  const { kind } = model.rows[row];
  const { words } = describeSpeaker(model.rows[row]);
  return `${KIND_NAMES[kind]}: ${words.length > 60 ? `${words.slice(0, 59)}…` : words}`;
}
