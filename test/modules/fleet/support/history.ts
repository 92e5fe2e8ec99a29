/**
 * Random histories of machines that work on the sessions of one fleet: they die, stop and lose their connections. Each
 * line is written once by one machine, which notes the outcome; afterwards the notes are compared with the fleet's
 * lines.
 */

import { expect } from "vitest";
import { LEAF_MARKER } from "../../../../src/core/format/node-reader.ts";
import {
  HistoryMachine,
  type HistoryNotes,
  type HistoryOptions,
  sessionIdOf,
  type Written,
} from "./history-machine.ts";

/** Counts of a history, before its machines are reconciled. */
export interface HistoryFigures {
  /** Appends that were acknowledged. */
  appends: number;
  /** Entries that they have. */
  acknowledged: number;
  /** Number of these while the fleet was away. */
  local: number;
  /** Branches that were made because others wrote meanwhile. */
  branches: number;
  refused: number;
  unknown: number;
  kills: number;
  pauses: number;
  quarantined: number;
  replaced: number;
}

/** Sessions that a machine is asked for afterwards without having them. */
const MOST_FETCHED = 20;

/** Runs a history. Fails unless the fleet's lines agree with the reported outcomes. `linesOf` reads the fleet. */
export async function runHistory(
  options: HistoryOptions,
  settle: () => Promise<void>,
  linesOf: (sessionId: string) => readonly string[],
): Promise<HistoryFigures> {
  let now = 0;
  const written: Written[] = [];
  const counts = { kills: 0, pauses: 0, quarantined: 0, replaced: 0, branches: 0 };
  const notes: HistoryNotes = { written, tick: () => ++now, counts };
  const machines = Array.from({ length: options.machines }, (_, n) => new HistoryMachine(options, n, notes));
  await Promise.all(machines.map((machine) => machine.run()));
  // The outcomes before the machines are reconciled.
  const acknowledged = written.filter(({ outcome }) => outcome === "acknowledged");
  const figures = {
    appends: acknowledged.length,
    acknowledged: entriesOf(acknowledged),
    local: entriesOf(acknowledged.filter(({ isLocal }) => isLocal)),
    refused: written.filter(({ outcome }) => outcome === "refused").length,
    unknown: written.filter(({ outcome }) => outcome === "unknown").length,
  };
  await settle();
  const ids = Array.from({ length: options.sessions }, (_, n) => sessionIdOf(n));
  for (const machine of machines) {
    const elsewhere = ids.filter((id) => !machine.isHere(id)).slice(0, MOST_FETCHED);
    const lines = await machine.finalLines(ids.filter((id) => machine.isHere(id) || elsewhere.includes(id)));
    for (const [id, texts] of lines) expect(texts, `the copy of ${id}`).toEqual(linesOf(id));
  }
  for (const id of ids) {
    const all = linesOf(id);
    requireParents(all);
    const lines = all.filter((line) => !line.includes(LEAF_MARKER));
    const ours = written.filter(({ sessionId }) => sessionId === id);
    // Lines that a promotion lost are uploaded again, as a branch where others wrote in between.
    requireTrue(ours, lines, !options.mayLose);
  }
  return { ...figures, ...counts };
}

const entriesOf = (appends: readonly Written[]): number => appends.reduce((sum, { texts }) => sum + texts.length, 0);

/** Fails unless each line comes after the one that it continues. */
function requireParents(lines: readonly string[]): void {
  const ids = new Set<string | null>([null]);
  for (const line of lines) {
    const { id, parentId } = JSON.parse(line) as { id: string; parentId: string | null };
    expect(ids.has(parentId), `without its parent: ${line}`).toBe(true);
    ids.add(id);
  }
}

/** Fails unless a session's lines are the acknowledged ones, once each, and in a possible order. */
function requireTrue(written: readonly Written[], lines: readonly string[], isOrdered: boolean): void {
  const places = new Map<string, number>();
  for (const [place, line] of lines.entries()) {
    expect(places.has(line), `there twice: ${line}`).toBe(false);
    places.set(line, place);
  }
  const known = new Set(written.flatMap(({ texts }) => texts));
  for (const line of lines) expect(known.has(line), `nobody wrote: ${line}`).toBe(true);
  const acknowledged: { began: number; ended: number; first: number; last: number }[] = [];
  for (const { outcome, texts, began, ended, isLocal } of written) {
    const found = texts.map((text) => places.get(text));
    if (outcome === "refused") expect(found, `a ghost: ${texts[0]}`).toEqual(texts.map(() => undefined));
    const isThere = found[0] !== undefined;
    expect(found, `together: ${texts[0]}`).toEqual(
      texts.map((_, n) => (isThere ? (found[0] as number) + n : undefined)),
    );
    if (outcome !== "acknowledged") continue;
    expect(isThere, `lost: ${texts[0]}`).toBe(true);
    if (isLocal) continue;
    acknowledged.push({ began, ended, first: found[0] as number, last: found.at(-1) as number });
  }
  if (!isOrdered) return;
  // Whatever was acknowledged before another was asked for comes before it.
  acknowledged.sort((a, b) => a.ended - b.ended);
  let latest = -1;
  const byBeginning = [...acknowledged].sort((a, b) => a.began - b.began);
  let next = 0;
  for (const { began, first } of byBeginning) {
    for (; next < acknowledged.length && acknowledged[next].ended < began; next++)
      latest = Math.max(latest, acknowledged[next].last);
    expect(first, "in the order of time").toBeGreaterThan(latest);
  }
}
