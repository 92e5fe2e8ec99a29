/**
 * The creation of a session, cut off by the death of its process, a loss of power or a failure at any disk operation: the
 * id can be used again, or the session is there, whole, and the reports about it are true.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { makeValueDraft } from "../../src/core/format/entry.ts";
import { toBytes } from "../../src/core/json/json.ts";
import type { Log, Store } from "../../src/core/ports/store.ts";
import type { Disk } from "../../src/storage/fs/disk.ts";
import { removeTree } from "../../src/storage/fs/staging.ts";
import { makeLock } from "../../src/storage/locks/contract.ts";
import { isLock, type Locks, noLocks } from "../../src/storage/locks/locks.ts";
import { FaultDisk, POWER_CUTS } from "../support/disk.ts";
import { disturbed } from "../support/disturbed.ts";
import { user } from "../support/drafts.ts";
import { BEGINNING } from "../support/env.ts";
import { fileText, headerText, id, SESSION, userText } from "../support/lines.ts";
import { type LockTable, locksOf } from "../support/locks.ts";
import { range, share } from "../support/random.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { beginning, FOLDER, idsOf, jsonlOn, workspaceOn } from "../support/sessions.ts";
import { acrossTiers } from "../support/tiers.ts";
import { v2On } from "../support/v2.ts";
import { diskError } from "./other-writers.ts";

type Kind = "jsonl" | "v2";

/** Creates a session with two entries; the disk may die meanwhile. */
async function createOn(disk: FaultDisk, kind: Kind): Promise<void> {
  const session = workspaceOn(disk, kind).create({ id: SESSION });
  const { message } = user("one") as Json;
  session.append([makeValueDraft("message", { message }), makeValueDraft("message", { message })]);
  await session.commit();
  session.close();
}

const listed = async (server: HereServer): Promise<Json[]> => (await server.result("list_sessions")).sessions;

/** Names below the session folder, those of temporary ones without their numbers, with the sizes of files. */
function listLeft(disk: FaultDisk): string {
  const paths = disk.paths().filter((path) => path.startsWith(`${FOLDER}/`));
  return paths.map((path) => `${path.replace(/\d+-\d+/, "n")} ${disk.content(path)?.length}`).join("\n");
}

async function expectSensible(disk: FaultDisk, kind: Kind): Promise<"there" | "free"> {
  const server = serveHere(["--events", "none", "--store", kind, "--session-dir", FOLDER], { disk, locks: noLocks });
  try {
    const found = await listed(server);
    if (found.length > 0) {
      expect(found).toMatchObject([{ sessionId: SESSION }]);
      const { sessionPath } = found[0];
      expect((await server.failure("new_session", { newSessionId: SESSION })).data.name).toBe("already_exists");
      expect(await server.result("switch_session", { sessionId: SESSION })).toMatchObject({ sessionFile: sessionPath });
      const { entries } = await server.result("get_entries");
      expect([0, 2]).toContain(entries.length);
      await server.result("append", { entries: [user("more")] });
      expect(await server.result("verify_session")).toMatchObject({ ok: true });
      await server.result("new_session");
      await server.result("delete_session", { sessionId: SESSION, permanent: true });
      expect(await listed(server)).toEqual([]);
    } else expect((await server.failure("switch_session", { sessionId: SESSION })).data.name).toBe("session_not_found");
    await server.result("new_session", { newSessionId: SESSION });
    await server.result("append", { entries: [user("again")] });
    expect(await listed(server)).toMatchObject([{ sessionId: SESSION, messageCount: 1 }]);
    expect(await server.result("verify_session")).toMatchObject({ ok: true });
    return found.length > 0 ? "there" : "free";
  } finally {
    await server.finish();
  }
}

acrossTiers(describe, ["jsonl", "v2"] as const)("a first append that was cut off, %s", (kind) => {
  acrossTiers(test, [3, 1])("leaves the id free or the session whole (dying at one of %i operations)", async (step) => {
    const whole = new FaultDisk();
    whole.makeFolder(FOLDER);
    const beginning = whole.after();
    whole.set(undefined);
    await createOn(whole, kind);
    const { length: count } = whole.operations;
    const seen = new Set<string>();
    const outcomes = new Set<string>();
    for (let at = count; at >= 1; at -= step) {
      const dying = beginning.after();
      dying.set({ kind: "die", at });
      await createOn(dying, kind).catch(() => {});
      const operation = dying.operations.at(-1);
      for (const cut of [undefined, ...POWER_CUTS]) {
        const disk = dying.after(cut);
        const left = listLeft(disk);
        if (seen.has(left)) continue;
        seen.add(left);
        try {
          outcomes.add(await expectSensible(disk, kind));
        } catch (error) {
          const context = `dies at operation ${at} of ${count}, ${operation}, ${JSON.stringify(cut)}, leaves\n${left}`;
          throw new Error(`${context}\n${(error as Error).message}`, { cause: error });
        }
      }
    }
    expect([...outcomes].sort()).toEqual(["free", "there"]);
  });
});

describe.each([
  ["jsonl", "publish"],
  ["jsonl", "publishNow"],
  ["v2", "publish"],
] as const)("a new log in %s by %s", (kind, way) => {
  const SOURCE = `${FOLDER}/source.${kind}`;
  const MADE = `${FOLDER}/${SESSION}.${kind}`;
  const NAME = kind === "v2" ? `${MADE.slice(0, -3)}.store.json` : MADE;
  const HEADER = kind === "v2" ? `${MADE}/header.jsonl` : MADE;
  const blobOf = (path: string): string => `${kind === "v2" ? `${path}/blobs` : `${path}.blobs`}/${"a".repeat(64)}`;
  const storeOn = (disk: Disk, more: { durability?: "os"; locks?: Locks } = {}) =>
    (kind === "v2" ? v2On : jsonlOn)(disk, more);
  const publish = async (store: Store, attachmentsOf?: string): Promise<Log> =>
    (store[way] as Store["publish"])({ ...beginning(), file: MADE, attachmentsOf }, []);

  test("whose name is taken removes nothing of the session that has it, whichever operation fails", async () => {
    const taken = new FaultDisk();
    taken.put(blobOf(SOURCE), toBytes("of the source"));
    taken.put(blobOf(MADE).replaceAll("aa", "bb"), toBytes("of the session that is there"));
    taken.put(HEADER, toBytes("the session that is there"));
    const whole = taken.after();
    whole.set(undefined);
    await expect(publish(storeOn(whole), SOURCE)).rejects.toMatchObject({ name: "already_exists" });
    expect(whole.operations.length).toBeGreaterThan(3);
    for (let at = 1; at <= whole.operations.length; at++) {
      const disk = taken.after();
      disk.set({ kind: "fail", at, errno: "EIO" });
      await expect(publish(storeOn(disk), SOURCE)).rejects.toThrow(Failure);
      for (const path of taken.paths())
        expect(disk.content(path), `${at}, ${disk.operations[at - 1]}: ${path}`).toEqual(taken.content(path));
    }
  });

  /** Publishes a log whose operation `failing` fails; before operation `at`, another process writes to it. */
  async function publishOn(disk: FaultDisk, failing: number, at: number) {
    const table: LockTable = new Map();
    const other = storeOn(disk, { durability: "os", locks: locksOf("another", table) });
    let first = Number.POSITIVE_INFINITY;
    let last = 0;
    let acknowledged = false;
    const ours = disturbed(disk, (n) => {
      last = n;
      if (n < first && disk.content(NAME) !== undefined) first = n;
      if (n === at) {
        try {
          const log = other.open(MADE);
          log.append([toBytes(userText(id(9), null))]);
          log.close();
          acknowledged = true;
        } catch (error) {
          expect(error).toBeInstanceOf(Failure);
        }
      }
      if (n === failing) throw diskError();
    });
    let failure: Failure | undefined;
    try {
      (await publish(storeOn(ours, { locks: locksOf("this", table) }), SOURCE)).close();
    } catch (error) {
      failure = error as Failure;
    }
    return { first, last, acknowledged, failure, other };
  }

  acrossTiers(test, [kind === "v2" ? 1 : 5, 24])(
    "that fails when it has its name leaves what others wrote, and says so (%i)",
    async (count) => {
      const source = new FaultDisk();
      source.put(blobOf(SOURCE), toBytes("of the source"));
      const { first, last } = await publishOn(source.after(), 0, 0);
      expect(last - first).toBeGreaterThan(3);
      const seen = new Set<string>();
      for (const failing of share(range(first, last + 1), count)) {
        const alone = await publishOn(source.after(), failing, 0);
        for (let at = first; at <= Math.max(last, alone.last); at++) {
          const disk = source.after();
          const { acknowledged, failure, other } = await publishOn(disk, failing, at);
          seen.add(`${failure === undefined ? "made" : "failed"}${acknowledged ? ", written by another" : ""}`);
          const what = `operation ${failing} fails, another comes before ${at}`;
          if (acknowledged) expect(idsOf(other.open(MADE)), what).toEqual([id(9)]);
          expect(disk.content(blobOf(MADE)) !== undefined, what).toBe(acknowledged || failure === undefined);
          if (failure !== undefined) expect(failure.message.includes("all the same"), what).toBe(acknowledged);
        }
      }
      expect([...seen]).toEqual(expect.arrayContaining(["failed", "failed, written by another"]));
    },
  );

  /** Publishes a log whose operations fail once it has its name, and checks that the report is true. */
  async function expectTrue(meddle: (disk: FaultDisk) => (name: string) => void, losesLock = false): Promise<void> {
    const outcomes = new Set<string>();
    for (let failing = 1; failing <= 8; failing++) {
      const disk = new FaultDisk();
      disk.makeFolder(FOLDER);
      let [named, meddling] = [0, (_: string): void => {}];
      const ours = disturbed(disk, (_, name) => {
        meddling(name);
        if (disk.content(NAME) === undefined || ++named !== failing) return;
        meddling = meddle(disk);
        throw diskError();
      });
      const locks = locksOf("this", new Map());
      const acquire: Locks["acquire"] = (...given) => {
        const lock = locks.acquire(...given);
        if (!isLock(lock) || !losesLock) return lock;
        return makeLock(() => {
          lock.release();
          throw diskError();
        });
      };
      const publishing = publish(storeOn(ours, { locks: { ...locks, acquire } }));
      const message = await publishing.then(
        () => undefined,
        (error: Error) => error.message,
      );
      if (message === undefined) continue;
      const says = (text: string) => Buffer.from(disk.content(HEADER) ?? []).includes(text);
      const [isOurs, isOther] = [says(SESSION), says("of-another")];
      const isThere = disk.paths().some((path) => path === MADE || path.startsWith(`${MADE}/`));
      const context = `operation ${failing}: ${message}`;
      expect(message.includes("delete_session"), context).toBe(isOurs);
      expect(message.includes("Look at it"), context).toBe(isThere && !isOurs && !isOther);
      expect(message.includes("Nothing was changed") && isThere && !isOther, context).toBe(false);
      outcomes.add(message);
    }
    expect(outcomes.size).toBeGreaterThan(0);
  }

  test.each([
    ["puts its own file there", "notes\n"],
    ["puts its own session there", fileText(headerText({ id: "of-another" }))],
    ["removes it", undefined],
  ])("advises to delete nothing of another program that %s", (_deed, text) =>
    expectTrue((disk) => {
      if (kind === "v2") removeTree(disk, MADE);
      else disk.remove(MADE);
      if (text !== undefined) disk.put(HEADER, toBytes(text));
      return () => {};
    }),
  );

  test.each(range(0, 9))(
    "says that nothing was changed only where nothing is left, after %i removals no more",
    (allowed) =>
      expectTrue(() => {
        let removed = 0;
        return (name) => {
          if (name.startsWith("remove") && removed++ >= allowed) throw diskError();
        };
      }),
  );

  test("says nothing of it where it was removed, and its lock lost then", () => expectTrue(() => () => {}, true));
});

describe("what dead processes left while they made containers", () => {
  const MINUTE = 60_000;
  const staging = (pid: number): string => `${FOLDER}/.${SESSION}.v2.staging.${pid}-1`;
  // No process has it: pids end at 2^22.
  const DEAD = (1 << 22) + 1;

  test.each([
    ["of a dead process, idle for an hour", DEAD, 60, false],
    ["of a dead process here, which may live in another namespace", DEAD, 1, true],
    ["of a living process", process.pid, 60, true],
    ["of a living process that cannot be its maker", process.pid, 25 * 60, false],
  ])("%s", async (_name, pid, idle, isKept) => {
    const disk = new FaultDisk();
    // The clock of the workspace begins where that of the tests does.
    disk.clock = () => BEGINNING - idle * MINUTE;
    disk.put(`${FOLDER}/.mine`, toBytes("x"));
    for (const name of ["header.jsonl", "index/offsets.jsonl", "segments/0000000000000001.seg"])
      disk.put(`${staging(pid)}/${name}`, new Uint8Array(3));
    disk.clock = undefined;
    await createOn(disk, "v2");
    expect(disk.paths().some((path) => path.startsWith(staging(pid)))).toBe(isKept);
    expect(disk.names(FOLDER)).toContain(".mine");
  });
});
