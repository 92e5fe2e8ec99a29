/**
 * A program that knows no pointer (Pi has the session open, or opens it by the name of its file) writes to the session file
 * while a migration or a rollback is under way, or after its process died in the middle. At each moment there is one
 * session, and it has every line whose write that program reported as done, or names the file that has it.
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { migrate } from "../../../src/storage/v2/migration.ts";
import { rollBack } from "../../../src/storage/v2/rollback.ts";
import { CONTAINER, cutOffs, FILE, FOLDER, optionsOn, serveOn, TEXT, WAYS, type Way } from "../../support/cut-off.ts";
import { CHANGES, FaultDisk } from "../../support/disk.ts";
import { disturbed } from "../../support/disturbed.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere } from "../../support/server.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import { contentsOf } from "../../support/v2.ts";

/** Id of the entry that the other program writes. */
const THEIRS = "7e117e11";
const LINE = `${userText(THEIRS, id(1))}\n`;

/** A program that goes on with a session: one that opens it needs its file, one that has it open makes it anew. */
type Program = "opens" | "has open";

/** Appends as the other program does; returns whether it reported the write as done. */
function appendOther(disk: FaultDisk, program: Program): boolean {
  if (disk.content(FILE) === undefined) {
    if (program === "opens") return false;
    disk.put(FILE, toBytes(LINE));
    return true;
  }
  const fd = disk.openAppend(FILE);
  disk.write(fd, toBytes(LINE));
  disk.close(fd);
  return true;
}

/** Returns a new server's view: sessions, ids of entries, and its other answers about the session. */
async function findOn(disk: FaultDisk): Promise<{ sessions: string[]; ids: string[]; said: string }> {
  const server = serveOn(disk.after(), "--session-dir", FOLDER, "--session", SESSION);
  try {
    const { sessions } = await server.result("list_sessions");
    const { entries } = await server.result("get_entries");
    const { diagnostics } = await server.result("get_state");
    return {
      sessions: sessions.map((one: Json) => `${one.sessionId}`),
      ids: entries.map((one: Json) => one.id),
      said: JSON.stringify(diagnostics),
    };
  } finally {
    await server.finish();
  }
}

/**
 * Checks the rule on a disk. What a program wrote that opened the file is in the session at once; one that made the file
 * anew has written no session, so that file is named.
 */
async function checkRule(disk: FaultDisk, { ids }: Way, program: Program, isDone: boolean): Promise<void> {
  const found = await findOn(disk);
  expect(found.sessions).toEqual([SESSION]);
  expect(found.ids.slice(0, ids.length)).toEqual(ids);
  expect(found.ids.slice(ids.length).filter((one) => one !== THEIRS)).toEqual([]);
  expect(found.ids.filter((one) => one === THEIRS).length).toBeLessThan(2);
  if (isDone && !found.ids.includes(THEIRS))
    expect([program, found.said]).toEqual(["has open", expect.stringContaining(FILE)]);
}

/** Checks it again after each way out, with what that says where it is refused. */
async function checkWaysOut(disk: FaultDisk, way: Way, program: Program, isDone: boolean): Promise<void> {
  for (const go of [rollBack, migrate]) {
    const next = disk.after();
    const known = next.content(FILE) === undefined ? CONTAINER : FILE;
    await go(optionsOn(next), known).catch(() => {});
    await checkRule(next, way, program, isDone);
  }
}

/** The same for each server: the record of operations is found again on the disk. */
const PLACE: Place = {
  home: "/home/me",
  state: "/state",
  cwd: "/home/me",
  variables: { HOME: "/home/me", PI_SESSION_SERVER_STATE_DIR: "/state" },
};

const serveAgain = (disk: FaultDisk, session: string): HereServer =>
  serveHere(["--events", "none", "--session-dir", FOLDER, "--session", session], {
    disk,
    locks: noLocks,
    place: PLACE,
  });

/** Taking a migration back by its operation. */
const UNDO: Way = {
  name: "the undo of a migration",
  begin: async () => {
    const disk = new FaultDisk();
    disk.put(FILE, toBytes(TEXT));
    const server = serveAgain(disk, FILE);
    await server.result("migrate_session");
    await server.finish();
    return disk.after();
  },
  go: async (disk) => {
    const server = serveAgain(disk, CONTAINER);
    const { error } = await server.request("undo");
    await server.finish();
    if (error) throw new Error(error.message);
  },
  ids: [id(0), id(1)],
};

/** Returns the names and contents on a disk, without the parts of names that differ in each run. */
const markOf = (disk: FaultDisk): string =>
  contentsOf(disk)
    .join()
    .replace(/\d+-\d+/g, "");

const PROGRAMS: readonly Program[] = ["opens", "has open"];

async function atEach<T>(cases: Iterable<T>, nameOf: (one: T) => string, check: (one: T) => Promise<void>) {
  let count = 0;
  for (const one of cases) {
    count++;
    await check(one).catch((error: Error) => {
      throw new Error(`${nameOf(one)}: ${error.message}`, { cause: error });
    });
  }
  return count;
}

/** The way whose middle shows most comes first, and is in the tier of this file. */
const ORDERED = [...WAYS].sort((a, b) => Number(b.name.includes("later")) - Number(a.name.includes("later")));

acrossTiers(describe, [...ORDERED, UNDO])("beside a program that knows no pointer, $name", (given) => {
  const way = given as Way;
  // A file that never existed is never open.
  const programs = PROGRAMS.filter((program) => program === "opens" || !way.name.includes("began in V2"));

  describe.each(programs)("that %s the file", (program) => {
    acrossTiers(test, [4, 1])("and is cut off: one session has or names every line (one of %i)", async (ofMany) => {
      const count = await atEach(
        (await cutOffs(way)).filter((_, n) => n % ofMany === 1 % ofMany),
        ({ at }) => at,
        async ({ disk }) => {
          await checkRule(disk, way, program, false);
          const isDone = appendOther(disk, program);
          await checkRule(disk, way, program, isDone);
          await checkWaysOut(disk, way, program, isDone);
        },
      );
      expect(count).toBeGreaterThan(4 / ofMany);
    });

    acrossTiers(test, [4, 1])("and goes on: one session has or names every line (one of %i)", async (ofMany) => {
      const whole = await way.begin();
      whole.set(undefined);
      await way.go(whole);
      const { operations } = whole;
      const beginning = await way.begin();
      const points = operations.flatMap((operation, i) => (CHANGES.has(operation) ? [i + 1, i + 2] : []));
      const seen = new Set<string>();
      await atEach(
        [...new Set(points)].filter((_, n) => n % ofMany === 0),
        (at) => `before operation ${at}, ${operations[at - 1]}`,
        async (at) => {
          const disk = beginning.after();
          disk.set(undefined);
          let isDone = false;
          let isOver = false;
          const watched = disturbed(disk, () => {
            if (isOver || disk.operations.length + 1 < at) return;
            isOver = true;
            isDone = appendOther(disk, program);
          });
          await way.go(watched).catch(() => {});
          if (!isOver) isDone = appendOther(disk, program);
          const mark = markOf(disk);
          if (seen.has(mark)) return;
          seen.add(mark);
          await checkRule(disk, way, program, isDone);
          await checkWaysOut(disk, way, program, isDone);
        },
      );
    });

    test("and is cut off twice: one session has or names every line", SWEEP, async () => {
      for (const { disk, at } of await cutOffs(way)) {
        const isDone = appendOther(disk, program);
        for (const go of [rollBack, migrate]) {
          const known = disk.content(FILE) === undefined ? CONTAINER : FILE;
          const again = {
            begin: async () => disk.after(),
            go: (next: FaultDisk) => go(optionsOn(next), known).catch(() => {}),
          };
          await atEach(
            await cutOffs(again),
            (one) => `${at}, then ${go.name}, ${one.at}`,
            async (one) => checkRule(one.disk, way, program, isDone),
          );
        }
      }
    });
  });
});
