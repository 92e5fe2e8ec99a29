/**
 * Another program puts an older file in a session's place, and reading fails while that is taken in: what is lost is told
 * all the same, the leaf and the heads are found, and nothing stays open.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import { FaultDisk } from "../../support/disk.ts";
import { id } from "../../support/lines.ts";
import { FOLDER, idsOf, workspaceOn } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

/** A disk on which another program does something before the n-th read. */
class MeddledDisk extends FaultDisk {
  reads = 0;
  meddleAt = 0;
  meddle = (): void => {};

  override read(fd: number, into: Uint8Array, offset: number, length: number, position: number): number {
    if (++this.reads === this.meddleAt) this.meddle();
    return super.read(fd, into, offset, length, position);
  }
}

const draft = (n: number, rest = "") => ({ type: "custom", id: id(n), rest: bytesOf(rest) });

/** So long that it is not read with what lies before it, and kept: whoever wants it reads it. */
const LONG = `,"data":"${"x".repeat(20_000)}"`;

type Replaced = Awaited<ReturnType<typeof replaced>>;

/** A session that ends with a batch, and that three entries were appended to which its file lacks now. */
async function replaced(kind: "jsonl" | "v2", head: string | null) {
  const disk = new MeddledDisk();
  const session = workspaceOn(disk, kind).create();
  session.append([draft(0)]);
  session.heads.stand(head);
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

/** Looks twice, for the first look may fail. Returns how many entries were told to be lost. */
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

/** Expects that what is gone was told, and that the session goes on behind what is there. */
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
      const lost = lookTwice({ ...unharmed, disk: new MeddledDisk() });
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
