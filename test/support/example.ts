/** The world that the declared examples of commands speak of: a session, its entries, and another session. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assistant, user } from "./drafts.ts";
import { type Json, type Place, temporaryPlace } from "./server.ts";

/** Of the session that is opened. */
export const ID_OF_CURRENT = "01991f6e-1f1d-7c3e-b0a4-0242ac120002";

const ENTRIES: Json[] = [
  user("Hello", { id: "a1b2c3d4", parentId: null }),
  assistant("Hi there.", { id: "b2c3d4e5", parentId: "a1b2c3d4" }),
  user("Refactor auth.", { id: "c3d4e5f6", parentId: "b2c3d4e5" }),
  assistant("Done.", { id: "d4e5f6a7", parentId: "c3d4e5f6" }),
];

/** Lines of a session file: a header and these entries, with a timestamp each. */
export function sessionText(header: object, entries: readonly Json[]): string {
  const timestamp = "2026-01-24T16:22:26.831Z";
  const lines = [
    { type: "session", version: 3, timestamp, ...header },
    ...entries.map(({ type, id, parentId, ...rest }) => ({ type, id, parentId, timestamp, ...rest })),
  ];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

/** `/home/me` of the examples is the place's home. */
export function examplePlace(): { place: Place; session: string; text: (example: unknown) => string } {
  const place = temporaryPlace();
  const folder = join(place.home, "sessions");
  mkdirSync(folder);
  const write = (name: string, id: string): string => {
    const file = join(folder, name);
    writeFileSync(file, sessionText({ id, cwd: place.cwd }, ENTRIES));
    return file;
  };
  write("old.jsonl", "01991f6e-1f1d-7c3e-b0a4-0242ac120003");
  return {
    place,
    session: write("current.jsonl", ID_OF_CURRENT),
    text: (example) => JSON.stringify(example).replaceAll("/home/me", place.home),
  };
}
