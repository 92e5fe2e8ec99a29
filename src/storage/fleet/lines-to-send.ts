/** The lines of a log as a fleet is sent them. */

import type { Log } from "../../core/ports/store.ts";

/** Returns the position after the lines from one on, at least one, that have so many bytes together. */
export function pastOf(log: Log, from: number, count: number, bytes: number): number {
  let past = from;
  for (let sum = 0; past < count && (past === from || sum + log.length(past) <= bytes); past++) sum += log.length(past);
  return past;
}

/** Returns the id, parent, type and role of entries, as JSON. */
export function headsOf(nodes: Log["nodes"], from: number, past: number): string[] {
  return Array.from({ length: past - from }, (_, i) => {
    const position = from + i;
    const parent = nodes.parent(position);
    return JSON.stringify([
      nodes.id(position),
      parent < 0 ? null : nodes.id(parent),
      nodes.type(position),
      nodes.role(position),
    ]);
  });
}
