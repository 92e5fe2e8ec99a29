/** Gaps in the chain of parents that damaged lines leave, and checks of the entries around them. */

import { unpackId } from "../../core/tree/nodes.ts";
import type { LineScanner, ScannedParts } from "./scan.ts";

/** Length of the longest line whose body is checked at opening, in bytes. */
const CHECKED_LINE = 1 << 20;
/** Lines at the end of a file whose bodies are checked at opening (reliability cases, guarantee 6). */
const CHECKED_TAIL = 64;

type Checked = Pick<ScannedParts, "entries" | "records">;

/**
 * Gives a parent to entries whose own is not in the file: the nearest known entry above the lost parent, if the
 * parent's head was legible; or the entry before, if a line that could not be read lies between two stretches of one
 * chain. Anywhere else the path ends, because a guess could splice an abandoned branch into what the model sees
 * (guarantee 7). The entries around each gap are checked first: they may contain the lost parent.
 */
export function bridgeGaps({ entries, records }: Checked, { lostParents, stored }: LineScanner): void {
  const { nodes, damage } = entries;
  const { starts, reader } = records;
  const lacking = [...nodes.lackingParent(stored?.header.id ?? "")];
  for (const [position] of lacking)
    checkEntries({ entries, records }, position - 1, Math.min(position + 2, nodes.count));
  const lost = damage.filter(({ kind }) => kind === "bad_line").map(({ byteOffset }) => byteOffset);
  for (const [position, parentId] of lacking) {
    const above = position - 1;
    const gap = lost.some((offset) => above >= 0 && offset > starts.values[above] && offset < starts.values[position]);
    const chained = above === 0 || (above > 0 && nodes.parent(above) === above - 1);
    const continued = position + 1 >= nodes.count || nodes.parent(position + 1) === position;
    const grandparent = knownAbove(parentId);
    const report = (reason: string): void =>
      reader.report("missing_parent", position, `the parent ${parentId} ${reason}`, true);
    if (grandparent >= 0 && grandparent < position) {
      report("was lost; its own parent takes its place");
      nodes.bridge(position, grandparent);
    } else if (gap && chained && continued) {
      report("was lost; the entry before takes its place");
      nodes.bridge(position, above);
    } else reader.reportOrphan(position, parentId, `the parent ${parentId} is not in the file; the path ends here`);
  }

  /** Returns the nearest known entry above one whose head alone was legible, or -1. */
  function knownAbove(id: string): number {
    for (const seen = new Set([id]); ; seen.add(id)) {
      const packed = lostParents.get(id) ?? -1;
      if (packed < 0) return -1;
      id = unpackId(packed);
      const position = nodes.position(id);
      if (position >= 0 || seen.has(id)) return position;
    }
  }
}

/** Checks the last entries of a file, where a crash leaves its damage. */
export function checkTail(parts: Checked): void {
  const { count } = parts.entries.nodes;
  checkEntries(parts, count - CHECKED_TAIL, count);
}

function checkEntries({ records: { reader, lengths } }: Checked, from: number, past: number): void {
  const checked: number[] = [];
  for (let p = Math.max(0, from); p < past; p++) if (lengths.values[p] <= CHECKED_LINE) checked.push(p);
  // Reading finds the damage.
  for (const _ of reader.readMany(checked, true));
}
