/**
 * An operation on a session leaves every other one as it is, whatever copies of it lie in the same folder: what belongs to
 * a session is what its pointer names as its source, and two sessions with one id are two.
 */

import { cpSync, linkSync, readdirSync, renameSync, symlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { contentsOf, library, put, putSession, read, rootOf, serveLibrary } from "../support/lifecycle.ts";
import { type HereServer, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { makeIn } from "../support/stored-sessions.ts";
import { SWEEP } from "../support/tiers.ts";

const OTHER_ID = "01991f6e-1f1d-7c3e-b0a4-0242ac139999";
const pointerOf = (container: string): string => container.replace(/\.v2$/, ".store.json");
const getPath = (path: string, name: string): string => join(dirname(path), name);

/** A server with a session of some store; `early` makes a copy of the session file, where there is one. */
interface Original {
  readonly server: HereServer;
  readonly path: string;
  readonly copy?: string;
}

type Early = (file: string) => string;

async function asFile(place: Place, early?: Early): Promise<Original> {
  const path = putSession(place, 1);
  return { copy: early?.(path), server: serveLibrary(place), path };
}

async function migrated(place: Place, early?: Early): Promise<Original> {
  const { server, path: file, copy } = await asFile(place, early);
  put(`${file}.v1.bak`, "backup");
  const { sessionPath: path } = await server.result("migrate_session", { sessionPath: file });
  const { sessionId } = await server.result("open_session", { sessionPath: path });
  await server.result("append", { sessionId, entries: [user("later")] });
  await server.result("close_session", { sessionId });
  return { server, path, copy };
}

async function rolledBack(place: Place, early?: Early): Promise<Original> {
  const { server, path, copy } = await migrated(place, early);
  const { sessionPath } = await server.result("rollback_migration", { sessionPath: path });
  return { server, path: sessionPath, copy };
}

async function born(place: Place): Promise<Original> {
  const { server, file: path } = await makeIn("v2", library(0, [], place));
  return { server, path };
}

const STORES = {
  "a session file": asFile,
  "a migrated session": migrated,
  "one rolled back": rolledBack,
  "a container": born,
};
const OF_FILES = ["a session file", "a migrated session", "one rolled back"];
const CONTAINERS = ["a migrated session", "a container"];

/** Ways in which a second session with the same id arises. */
interface Way {
  readonly of: readonly string[];
  /** Makes it of the session file as it was at first. */
  readonly early?: Early;
  /** Makes it of the session as it is now. */
  readonly late?: (original: Original) => Promise<string> | string;
  /** True if the path of the copy means the session, too. */
  readonly isOneSession?: boolean;
}

const named =
  (nameOf: (file: string) => string): Early =>
  (file) => {
    const copy = getPath(file, nameOf(basename(file)));
    cpSync(file, copy);
    return copy;
  };

const ofContainer = (name: string, hasPointer: boolean): Way => ({
  of: CONTAINERS,
  late({ path }) {
    const copy = getPath(path, name);
    cpSync(path, copy, { recursive: true });
    if (hasPointer) cpSync(pointerOf(path), pointerOf(copy));
    return copy;
  },
});

const ofFrozen = (nameOf: (file: string) => string, more: Partial<Way> = {}, hasPointer = true): Way => ({
  of: ["a migrated session"],
  ...more,
  late({ path }) {
    const frozen = readdirSync(dirname(path)).find((name) => name.endsWith(".migrated")) as string;
    const copy = named(nameOf)(getPath(path, frozen));
    if (!hasPointer) renameSync(pointerOf(path), `${pointerOf(path)}.away`);
    return copy;
  },
});

const WAYS: Record<string, Way> = {
  "a copy named after its file": { of: OF_FILES, early: named((name) => name.replace(".jsonl", "-backup.jsonl")) },
  "a copy named otherwise": { of: OF_FILES, early: named(() => "backup.jsonl") },
  "a copy that was continued": {
    of: OF_FILES,
    early(file) {
      const copy = named(() => "continued.jsonl")(file);
      const entry = { ...user("only here"), id: "d0000000", parentId: null, timestamp: "2026-01-25T00:00:00.000Z" };
      return put(copy, `${read(copy)}${JSON.stringify(entry)}\n`);
    },
  },
  "a hard link": {
    of: OF_FILES,
    early(file) {
      linkSync(file, getPath(file, "link.jsonl"));
      return getPath(file, "link.jsonl");
    },
  },
  "an export": {
    of: Object.keys(STORES),
    async late({ server, path: sessionPath }) {
      const outputPath = getPath(sessionPath, "export.jsonl");
      await server.result("export_session", { sessionPath, format: "jsonl", outputPath });
      return outputPath;
    },
  },
  "a copy of its frozen file": ofFrozen(() => "again.jsonl"),
  "a copy of its frozen file under the old name": ofFrozen((name) => name.replace(".migrated", ""), {
    isOneSession: true,
  }),
  "a copy of its frozen file, and no pointer": ofFrozen(() => "again.jsonl", {}, false),
  "a copy of its container and pointer": ofContainer(`${OTHER_ID}.v2`, true),
  "a copy of its container": ofContainer(`${OTHER_ID}.v2`, false),
  "a backup of its container and pointer": ofContainer("backup.v2", true),
};

type Doing = (server: HereServer, sessionPath: string) => Promise<unknown>;

/** Sends requests one after the other; each may be refused. */
const asked =
  (...calls: [method: string, params?: object][]): Doing =>
  async (server, sessionPath) => {
    let at = sessionPath;
    for (const [method, params] of calls) {
      const { result } = await server.request(method, { sessionPath: at, ...params });
      if (method === "archive_session") at = result?.movedTo ?? at;
    }
  };

/** Operations on a session that is named by its path; each may be refused. */
const OPERATIONS: Record<string, Doing> = {
  "delete for good": asked(["delete_session", { permanent: true }]),
  delete: asked(["delete_session"]),
  archive: asked(["archive_session"]),
  relocate: asked(["relocate_session", { cwd: "/new/place", allowMissing: true }]),
  migrate: asked(["migrate_session"]),
  "roll back": asked(["rollback_migration"]),
  "delete and restore": asked(["delete_session"], ["restore_session"]),
  "delete and undo": async (server, sessionPath) => {
    const { result } = await server.request("delete_session", { sessionPath });
    if (result) await server.result("undo", {});
  },
  "archive and bring back": asked(["archive_session"], ["unarchive_session"]),
  "relocate to its own place": async (server, sessionPath) => {
    const { result } = await server.request("preview_session", { sessionPath });
    await asked(["relocate_session", { cwd: result?.cwd ?? server.place.cwd, allowMissing: true }])(
      server,
      sessionPath,
    );
  },
  "migrate and roll back": asked(["migrate_session"], ["rollback_migration"]),
  repair: async (server, sessionPath) => {
    await server.request("switch_session", { sessionPath });
    await server.request("repair_session", {});
  },
  prune: asked(["prune_leftovers", { permanent: true, force: true }]),
  import: (server, path) => server.request("import_session", { path }),
  "mend the health": (server) => server.request("fix_health", {}),
};
/** Those that go by what belongs to a session. */
const MAIN = ["delete for good", "archive", "relocate", "migrate", "roll back"];
/** A session of each kind with a copy that the same operations could take for its own; the sweep has all others. */
const CLOSEST = [
  "a session file and a copy named after its file",
  "one rolled back and an export",
  "a migrated session and a copy of its container and pointer",
  "a container and a copy of its container and pointer",
];

/** Returns the files of all sessions that belong to one, by their names, or those that do not. */
function filesOf(place: Place, path: string, isWanted: "own" | "others"): [path: string, content: string][] {
  const isOwn = (file: string): boolean =>
    file === path || file.startsWith(`${path}.`) || file.startsWith(`${path}/`) || file === pointerOf(path);
  const isOfReader = (file: string): boolean => /\/(writer\.|index-snapshot|\.pi-session-server)/.test(file);
  const all = Object.entries(contentsOf(rootOf(place)));
  return all.filter(([file]) => isOwn(file) === (isWanted === "own") && !isOfReader(file));
}

for (const [store, make] of Object.entries(STORES))
  for (const [way, { of, early, late, isOneSession }] of Object.entries(WAYS))
    if (of.includes(store))
      describe(`${store} and ${way}`, () => {
        const begin = async (): Promise<{ place: Place; server: HereServer; original: string; copy: string }> => {
          const place = temporaryPlace();
          const made = await make(place, early);
          const copy = made.copy ?? ((await late?.(made)) as string);
          return { place, server: made.server, original: made.path, copy };
        };
        for (const [doing, run] of Object.entries(OPERATIONS)) {
          const tier = MAIN.includes(doing) && CLOSEST.includes(`${store} and ${way}`) ? {} : SWEEP;
          if (!isOneSession)
            test(`to ${doing} the copy leaves the session as it is`, tier, async () => {
              const { place, server, copy } = await begin();
              const before = filesOf(place, copy, "others");
              await run(server, copy);
              expect(filesOf(place, copy, "others")).toEqual(expect.arrayContaining(before));
            });
          test(`to ${doing} the session leaves the copy as it is`, tier, async () => {
            const { place, server, copy, original } = await begin();
            // Files next to a file with its old name belong to the session.
            const isOfCopy = ([path]: [string, string]): boolean => !isOneSession || path === copy;
            const before = filesOf(place, copy, "own").filter(isOfCopy);
            await run(server, original);
            expect(filesOf(place, copy, "own").filter(isOfCopy)).toEqual(before);
          });
        }
      });

test("no export gets the name of a file whose container pi_agent_rust would take the session's for", async () => {
  const { server, path: sessionPath } = await born(temporaryPlace());
  const path = sessionPath.replace(/\.v2$/, ".jsonl");
  for (const overwrite of [false, true]) {
    const params = { sessionPath, format: "jsonl", outputPath: path, overwrite };
    expect((await server.failure("export_session", params)).data).toMatchObject({ name: "already_exists", path });
  }
});

test("to migrate a link migrates the session that it leads to", async () => {
  const { server, path: file } = await asFile(temporaryPlace());
  symlinkSync(file, getPath(file, "link.jsonl"));
  await server.result("migrate_session", { sessionPath: getPath(file, "link.jsonl") });
  const { active, snapshotPath } = await server.result("migration_status", { sessionPath: file });
  expect([active, snapshotPath]).toEqual(["native_v2", `${file}.migrated`]);
  await server.result("undo");
  expect(await server.result("switch_session", { sessionPath: file })).toMatchObject({ sessionFile: file });
});

test("a copy that has a container of its own id beside it is not migrated, and the refusal says what to do", async () => {
  const copied = named(() => "backup.jsonl");
  const { server, path, copy: sessionPath } = await migrated(temporaryPlace(), copied);
  for (const [method, said] of [
    ["migrate_session", /another session.*import/s],
    ["rollback_migration", /not migrated/],
  ] as const) {
    const { message, data } = await server.failure(method, { sessionPath });
    expect([data.name, message]).toEqual(["migration_failed", expect.stringMatching(said)]);
    const status = await server.result("migration_status", { sessionPath });
    expect(status).toMatchObject({ active: "jsonl_v3", state: "CLEAN" });
  }
  expect(await server.result("migration_status", { sessionPath: path })).toMatchObject({ active: "native_v2" });
});

/** A name next to a container that leads to it, or to a part of it. */
function linked(container: string, part: string, name: string): string {
  symlinkSync(join(container, part), getPath(container, name));
  return getPath(container, name);
}

test.each<[string, (container: string) => string]>([
  ["its header", (container) => join(container, "header.jsonl")],
  ["a segment", (container) => join(container, "segments", "0000000000000001.seg")],
  ["a name that is free in it", (container) => join(container, "new.jsonl")],
  ["a folder of it that is not there", (container) => join(container, "more", "new.jsonl")],
  ["a link to its header", (container) => linked(container, "header.jsonl", "link.jsonl")],
  ["its header in a folder that is a link", (container) => join(linked(container, "", "link"), "header.jsonl")],
  [
    "the header of a container that was rolled back",
    (container) => {
      cpSync(container, `${container}.rolled-back`, { recursive: true });
      return join(`${container}.rolled-back`, "header.jsonl");
    },
  ],
])("no path into a container is a session: %s", async (_, partOf) => {
  const place = temporaryPlace();
  const { server, path } = await born(place);
  const sessionPath = partOf(path);
  const before = contentsOf(rootOf(place));
  const refused = { data: { name: "not_a_session" }, message: expect.stringContaining("is a part of the session") };
  for (const command of ["switch_session", "delete_session", "migrate_session"])
    expect(await server.failure(command, { sessionPath })).toMatchObject(refused);
  const started = serveHere(["--session", sessionPath], { place });
  expect(await started.failure("append", { entries: [user("lost")] })).toMatchObject(refused);
  await started.finish();
  expect(contentsOf(rootOf(place))).toEqual(before);
});

test("the header of a container that lies among the folders of directories is in no list, and no session to verify", async () => {
  const place = temporaryPlace();
  const { server, path } = await born(place);
  for (const part of [path, pointerOf(path)]) renameSync(part, join(rootOf(place), basename(part)));
  expect((await server.result("list_sessions", { headerOnly: true })).sessions).toEqual([]);
  expect(await server.result("verify_sessions")).toMatchObject({ total: 0, ok: true });
  expect((await server.result("get_health")).hidden).toEqual([]);
});
