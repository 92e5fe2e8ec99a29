/** Servers on sessions to search, with the catalog's index and without. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pages } from "./asking.ts";
import { sessionText } from "./example.ts";
import { type Json, type Place, serveHere, temporaryPlace, type Wire } from "./server.ts";

export const VARIANTS = ["by the index", "by reading"] as const;

/** A server on these sessions; without a place for its catalog it has to read. */
export function serverOn(
  variant: (typeof VARIANTS)[number],
  sessions: Record<string, readonly Json[]>,
  place = temporaryPlace(),
) {
  for (const [id, entries] of Object.entries(sessions)) put(place, id, entries);
  if (variant === "by the index") return serveHere(["--no-session", "--events", "none"], { place });
  mkdirSync(place.state);
  writeFileSync(join(place.state, "catalog"), "no folder");
  return serveHere(["--no-session", "--events", "none"], { place });
}

export function put(place: Place, id: string, entries: readonly Json[], header: object = {}): string {
  const folder = join(place.home, ".pi/agent/sessions/--home-me-app--");
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `2026-01-24T16-22-26-831Z_${id}.jsonl`);
  writeFileSync(file, sessionText({ id, cwd: `/home/me/${id}`, ...header }, entries));
  return file;
}

/** Returns what all pages of a reply hold, one after the other. */
export async function everyPage(server: Wire, method: string, params: object, member: string): Promise<Json[]> {
  return (await pages(server, method, member, params)).flat();
}

let ids = 0;
/** Entries of these drafts, one chain. */
export function chain(...drafts: readonly Json[]): Json[] {
  let parentId: string | null = null;
  return drafts.map((draft) => {
    const id = (++ids).toString(16).padStart(8, "0");
    const entry = { id, parentId, ...draft };
    parentId = entry.id;
    return entry;
  });
}
