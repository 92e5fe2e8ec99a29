/** Explains why each entry of a path is in the context or out of it. */

import { parse } from "../json/json.ts";
import type { Tree } from "../tree/tree.ts";
import { type Bodies, collectEdits, type Edit, getContextSpan, yieldsMessage } from "./context.ts";
import type { Shown } from "./pairing.ts";
import { estimateTokens } from "./tokens.ts";

/** Reasons. In the context: shown, edited, shown_in_part. Out of it: the others. */
export const REASONS = [
  "shown",
  "edited",
  "shown_in_part",
  "compacted",
  "left_out",
  "unpaired",
  "unreadable",
  "no_message",
  "not_for_model",
] as const;

interface Explanation {
  readonly position: number;
  readonly in: boolean;
  readonly reason: (typeof REASONS)[number];
  /** The compaction or context edit that caused it. */
  readonly by?: number;
  /** Its estimated tokens in the context. */
  readonly tokens: number;
}

/** Explains each entry of the path to `leaf`. `all` is the context, `shown` the messages after pairing. */
export function explain(
  tree: Tree,
  bodies: Bodies,
  leaf: number,
  all: readonly Shown[],
  shown: readonly Shown[],
): Explanation[] {
  const { compaction, kept, after } = getContextSpan(tree, bodies, leaf);
  const edits = collectEdits(tree, bodies, kept, after);
  const inContext = new Set(all.map(({ item }) => item.position));
  const seen = new Map<number, { tokens: number; inPart: boolean; edit?: number }>();
  for (const { item, text, inPart = false } of shown) {
    // A compaction may yield two messages.
    const tokens = estimateTokens(parse(text)) + (seen.get(item.position)?.tokens ?? 0);
    seen.set(item.position, { tokens, inPart, edit: item.edit });
  }
  const uncut = new Set([...kept, compaction, ...after]);
  return Array.from(tree.path(leaf), (position) => {
    const there = seen.get(position);
    if (there) return { position, in: true, ...reasonIn(there), tokens: there.tokens };
    const out = inContext.has(position) ? { reason: "unpaired" as const } : undefined;
    return { position, in: false, ...(out ?? reasonOut(position, edits.get(position))), tokens: 0 };
  });

  function reasonOut(position: number, edit: Edit | undefined): Pick<Explanation, "reason" | "by"> {
    const { nodes } = tree;
    const speaks = nodes.isType(position, "message") || nodes.isType(position, "custom_message");
    if (speaks && nodes.hasNoMessage(position))
      return { reason: bodies.entry(position).damaged === true ? "unreadable" : "no_message" };
    const summarises = tree.lastCompaction(position) === position;
    if (!summarises && !yieldsMessage(tree, bodies, position)) return { reason: "not_for_model" };
    if (!uncut.has(position) || (summarises && position !== compaction)) return { reason: "compacted", by: compaction };
    return edit?.leavesOut ? { reason: "left_out", by: edit.position } : { reason: "not_for_model" };
  }
}

function reasonIn({ inPart, edit }: { inPart: boolean; edit?: number }): Pick<Explanation, "reason" | "by"> {
  if (inPart) return { reason: "shown_in_part" };
  return edit === undefined ? { reason: "shown" } : { reason: "edited", by: edit };
}
