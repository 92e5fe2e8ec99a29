/** The world that the declared examples of commands speak of: a session, its entries, and another session. */

import { mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { getArchiveFolder, toFolderName } from "../../src/storage/fs/paths.ts";
import { assistant, user } from "./drafts.ts";
import { type Json, type Place, temporaryPlace } from "./server.ts";
// @ts-expect-error plain JavaScript, to check containers without the program
import { writeContainer } from "./v2-checker.js";

/** The id of the open session. */
export const ID_OF_CURRENT = "01991f6e-1f1d-7c3e-b0a4-0242ac120002";
/** The id of the session in Session Store V2. */
export const ID_IN_CONTAINER = "01991f6e-1f1d-7c3e-b0a4-0242ac120007";

const entriesOf = (session: string): Json[] => [
  user("Hello", { id: "a1b2c3d4", parentId: null }),
  assistant("Hello. A map is faster.", {
    id: "a7c8e9f0",
    parentId: "a1b2c3d4",
    _batch: { session, head: "reviewer", index: 0, count: 1 },
  }),
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

/** One move of the leaf that can be undone, and one that was undone just now. */
function recordOperations({ state }: Place, path: string): void {
  const operation = (id: string, kind: string, leaf: readonly string[], more: object = {}): object => ({
    id,
    at: "2026-01-24T16:22:26.831Z",
    kind,
    sessionId: ID_OF_CURRENT,
    sessionPath: path,
    name: null,
    text: `Moved the leaf from ${leaf.join(" to ")}.`,
    step: { do: "change", path, leaf },
    stage: "done",
    state: realpathSync(state),
    ...more,
  });
  const lines = [
    operation("3f2a9c1077de", "branch", ["b2c3d4e5", "d4e5f6a7"]),
    operation("c4d07b52e118", "branch", ["d4e5f6a7", "b2c3d4e5"]),
    operation("92aa1c60d3b4", "undo", ["b2c3d4e5", "d4e5f6a7"], { of: "c4d07b52e118" }),
  ];
  mkdirSync(join(state, "operations"), { recursive: true });
  writeFileSync(join(state, "operations", "1.jsonl"), lines.map((line) => `\n${JSON.stringify(line)}\n`).join(""));
}

/** `/home/me` of the examples is the place's home, and the state folder below it that of the place. */
export function examplePlace() {
  const place = temporaryPlace();
  const folder = join(place.home, "sessions");
  mkdirSync(folder);
  // The working directory that relocate_session gives.
  mkdirSync(join(place.home, "other"));
  const write = (file: string, id: string): string => {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, sessionText({ id, cwd: place.cwd }, entriesOf(id)));
    return file;
  };
  const idOf = (number: number): string => `${ID_OF_CURRENT.slice(0, -1)}${number}`;
  write(join(folder, "old.jsonl"), idOf(3));
  const item = join(place.state, "trash", `deleted_${idOf(4)}`);
  write(join(item, "deleted.jsonl"), idOf(4));
  const path = join(folder, "deleted.jsonl");
  const deleted = { sessionId: idOf(4), path, deletedAt: "2026-01-24T16:22:26.831Z", name: null, messageCount: 4 };
  const record = { ...deleted, state: realpathSync(place.state) };
  writeFileSync(join(item, "record.json"), JSON.stringify(record));
  recordOperations(place, join(folder, "current.jsonl"));
  const root = join(place.home, ".pi", "agent", "sessions");
  write(join(root, toFolderName(place.cwd), `listed_${idOf(5)}.jsonl`), idOf(5));
  const archive = getArchiveFolder({ root, state: place.state });
  write(join(archive, toFolderName(place.cwd), `archived_${idOf(6)}.jsonl`), idOf(6));
  const kept = [user("Run the tests.", { id: "e5f6a7b8", parentId: "c3d4e5f6" })];
  mkdirSync(join(place.state, "quarantine"), { recursive: true });
  writeFileSync(
    join(place.state, "quarantine", `${ID_OF_CURRENT}.refused.bin`),
    sessionText({ id: ID_OF_CURRENT, cwd: place.cwd }, kept),
  );
  /** A session in Session Store V2, which is made when it is asked for. */
  const container = (): string => {
    const made = join(folder, `${ID_IN_CONTAINER}.v2`);
    const [header, ...lines] = sessionText({ id: ID_IN_CONTAINER, cwd: place.cwd }, entriesOf(ID_IN_CONTAINER))
      .trimEnd()
      .split("\n");
    writeContainer(made, header, lines);
    return made;
  };
  return {
    place,
    container,
    session: write(join(folder, "current.jsonl"), ID_OF_CURRENT),
    text: (example: unknown) =>
      JSON.stringify(example)
        .replaceAll("/home/me/.local/state/pi-session-server", place.state)
        .replaceAll("/home/me", place.home),
  };
}
