/**
 * Other programs at work between two steps of ours: an older file in a session's place, what stays though its commit
 * failed, and a new session that cannot become the current one.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { makeValueDraft } from "../../../src/core/format/entry.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import { getPointerFile, headerFile } from "../../../src/storage/fs/container-paths.ts";
import { removeTree } from "../../../src/storage/fs/staging.ts";
import { FaultDisk } from "../../support/disk.ts";
import { user } from "../../support/drafts.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import type { Json } from "../../support/server.ts";
import { FILE, FOLDER, idsOf, openOn, workspaceOn } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

/** A disk with an action of another program before the n-th read. */
class ReadDisk extends FaultDisk {
  reads = 0;
  meddleAt = 0;
  meddle = (): void => {};

  override read(fd: number, into: Uint8Array, offset: number, length: number, position: number): number {
    if (++this.reads === this.meddleAt) this.meddle();
    return super.read(fd, into, offset, length, position);
  }
}

const draft = (n: number, rest = "") => ({ type: "custom", id: id(n), rest: toBytes(rest) });

/** Too long for reading with the lines before it, and for the cache: it is read on demand. */
const LONG = `,"data":"${"x".repeat(20_000)}"`;

type Replaced = Awaited<ReturnType<typeof replaced>>;

/** A session that ends with a batch, and to which three entries were appended that its file now lacks. */
async function replaced(kind: "jsonl" | "v2", head: string | null) {
  const disk = new ReadDisk();
  const session = workspaceOn(disk, kind).create();
  session.append([draft(0)]);
  session.heads.setOwn(head);
  session.append([draft(1, LONG), draft(2, LONG)]);
  await session.commit();
  const filesNow = (): string[] => disk.paths().filter((path) => path.startsWith(FOLDER));
  const older = filesNow().map((path) => [path, disk.content(path) as Uint8Array] as const);
  for (const n of [3, 4, 5]) {
    session.append([draft(n)]);
    await session.commit();
  }
  // The ids that the session knows.
  const known = idsOf(session.log);
  for (const path of filesNow()) disk.remove(path);
  for (const [path, bytes] of older) disk.put(path, bytes);
  disk.set(undefined);
  disk.reads = 0;
  return { disk, session, known };
}

/** Looks twice, for the first look may fail. Returns the number of entries that were reported lost. */
function lookTwice({ disk, session }: Replaced): number {
  let lost = 0;
  for (let look = 0; look < 2; look++) {
    try {
      lost += session.refresh()?.lost ?? 0;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
    }
    disk.set(undefined);
  }
  return lost;
}

/** Expects that the missing entries were reported, and that the session goes on behind the present ones. */
function expectTaken({ session, known, disk }: Replaced, lost: number, openCount: number, what: string): void {
  const now = idsOf(session.log);
  expect(lost, what).toBe(known.filter((one) => !now.includes(one)).length);
  expect(session.leafId, what).toBe(now.at(-1));
  expect(session.sharedLeafId, what).toBe(session.heads.own === null ? now.at(-1) : id(0));
  expect(session.isDurable, what).toBe(true);
  expect(disk.openCount, what).toBe(openCount);
  session.append([draft(9)]);
  expect(session.entry(session.position(id(9))).parentId, what).toBe(now.at(-1));
}

acrossTiers(describe, ["jsonl", "v2"] as const)("%s", (kind) => {
  test.each([null, "mine"])(
    "whichever operation fails while it is taken in, where the host stands at %s",
    async (head) => {
      const unharmed = await replaced(kind, head);
      const lost = lookTwice({ ...unharmed, disk: new ReadDisk() });
      expect(lost).toBe(3);
      const { operations, openCount } = unharmed.disk;
      const points = [...operations];
      expectTaken(unharmed, lost, openCount, "nothing fails");
      for (const at of points.keys()) {
        const here = await replaced(kind, head);
        here.disk.set({ kind: "fail", at: at + 1, errno: "EIO" });
        expectTaken(here, lookTwice(here), openCount, `${points[at]} ${at + 1} fails`);
      }
    },
  );
});

test.each([null, "mine"])("whenever the file is cut meanwhile, where the host stands at %s", async (head) => {
  const unharmed = await replaced("jsonl", head);
  lookTwice(unharmed);
  const { reads } = unharmed.disk;
  expect(reads).toBeGreaterThan(3);
  for (let at = 1; at <= reads; at++) {
    const here = await replaced("jsonl", head);
    const { disk, session } = here;
    disk.meddleAt = at;
    disk.meddle = () => {
      const fd = disk.openAppend(session.file as string);
      disk.truncate(fd, (disk.content(session.file as string) as Uint8Array).length - 3);
      disk.close(fd);
    };
    expectTaken(here, lookTwice(here) + (session.refresh()?.lost ?? 0), unharmed.disk.openCount, `read ${at}`);
  }
});

/** A disk whose next sync fails, after another program has done something. */
class SyncDisk extends FaultDisk {
  meddle: (() => void) | undefined;

  override sync = async (fd: number): Promise<void> => {
    const { meddle } = this;
    this.meddle = undefined;
    if (!meddle) return this.syncNow(fd);
    meddle();
    throw Object.assign(new Error("the medium fails"), { code: "EIO" });
  };
}

test("what stayed when a session was left, or in an earlier commit, is not what a later commit is told of", async () => {
  const disk = new SyncDisk();
  disk.put(FILE, toBytes(fileText(headerText(), ...chain(3))));
  const writeAsOther = (entryId: string): void => {
    const fd = disk.openAppend(FILE);
    disk.write(fd, toBytes(`${userText(entryId, id(2))}\n`));
    disk.close(fd);
  };
  const session = openOn(disk);
  session.moveLeaf(0);
  disk.meddle = () => writeAsOther("other-1");
  await expect(session.leave()).rejects.toMatchObject({ name: "outcome_unknown" });
  for (const [n, name] of [
    [10, "storage_failed"],
    [11, undefined],
    [12, "outcome_unknown"],
    [13, undefined],
    [14, "storage_failed"],
  ] as const) {
    session.refresh();
    session.externalChanges.fresh();
    session.append([draft(n)]);
    if (name) disk.meddle = () => name === "outcome_unknown" && writeAsOther(`other-${n}`);
    if (name) await expect(session.commit(), id(n)).rejects.toMatchObject({ name });
    else await session.commit();
    const { nodes } = session.log;
    const position = nodes.position(id(n));
    expect(position >= 0, id(n)).toBe(name !== "storage_failed");
    if (position >= 0) expect(session.log.outcome(position)).toBe(name ? "unknown" : "certain");
  }
  expect(session.log.outcome(session.position(id(11)))).toBe("certain");
});

const CASES = (["jsonl", "v2"] as const).flatMap((kind) =>
  (["entries to it", "its own file there", "its own session there"] as const).map((deed) => [kind, deed] as const),
);

test.each(CASES)("on %s, after another program put %s", async (kind, deed) => {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  const workspace = workspaceOn(disk, kind);
  const session = workspace.create({});
  const { message } = user("one") as Json;
  session.append([makeValueDraft("message", { message })]);
  await session.commit();
  await workspace.replace(session);
  const next = await workspace.fork(session, 0);
  const file = next.file as string;
  const header = kind === "v2" ? headerFile(file) : file;
  const failure = await workspace
    .replace(next, async () => {
      if (deed === "entries to it") {
        const other = workspaceOn(disk, kind).open({ sessionPath: file });
        other.append([makeValueDraft("message", { message })]);
        await other.commit();
      } else {
        if (kind === "v2") disk.remove(getPointerFile(file));
        if (kind === "v2") removeTree(disk, file);
        else disk.remove(file);
        const own = fileText(headerText({ id: "of-another" }), userText("x", null));
        disk.put(header, toBytes(deed === "its own file there" ? "notes\n" : own));
      }
      throw Object.assign(new Error("the disk fails"), { code: "EIO" });
    })
    .catch((error) => error);
  expect(disk.content(header)).toBeDefined();
  expect(failure.message.includes("delete_session")).toBe(deed === "entries to it");
  expect(failure.message.includes("Look at it")).toBe(deed === "its own file there");
  await workspace.close();
});
