/** Heads: leaves of their own next to the shared one, kept in the entries; on both stores. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { makeValueDraft } from "../../../src/core/format/entry.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import type { Session } from "../../../src/core/session/session.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import { FaultDisk } from "../../support/disk.ts";
import { chain, fileText, headerText, id, SESSION } from "../../support/lines.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { diskWith, FILE, FOLDER, openOn, STATE, workspaceOn } from "../../support/sessions.ts";
import { sketch } from "../../support/sketch.ts";
import { acrossTiers } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;
type Kind = (typeof STORES)[number];

const said = (text = "more") => makeValueDraft("message", { message: { role: "user", content: text } });

/** Appends through a head; returns the id. */
function say(session: Session, head: string | null, text?: string): string {
  return session.at(head).append([said(text)]).ids[0];
}

function move(session: Session, head: string | null, leafId: string | null): void {
  session.at(head).moveLeaf(leafId === null ? ROOT : session.position(leafId));
}

function leafOf(session: Session, head: string | null): string | null {
  return session.at(head).leafId;
}

function reopened(disk: FaultDisk, kind: Kind, session: Session): Session {
  return workspaceOn(disk, kind).open({ sessionPath: session.file as string });
}

/** A session of two entries on the shared leaf, in a store. */
async function made(kind: Kind): Promise<{ disk: FaultDisk; session: Session; first: string; second: string }> {
  const disk = new FaultDisk();
  const session = workspaceOn(disk, kind).create({ id: SESSION });
  const [first, second] = session.append([said("one"), said("two")]).ids;
  await session.commit();
  return { disk, session, first, second };
}

acrossTiers(describe, STORES)("heads of a session of %s", (kind) => {
  test("do not lose a shared leaf that only the state folder had", async () => {
    const { disk, session, first } = await made(kind);
    move(session, null, first);
    await session.commit();
    say(session, "a");
    await session.commit();
    for (const path of disk.paths().filter((path) => path.startsWith(`${STATE}/leaves`))) disk.remove(path);
    expect(leafOf(reopened(disk, kind, session), null)).toBe(first);
  });

  test("go back no further than an earlier commit, which took along what came while it recorded the leaf", async () => {
    const { disk, session, first } = await made(kind);
    move(session, null, first);
    const recording = session.commit();
    const shared = say(session, null);
    const a = say(session, "a");
    await recording;
    expect(reopened(disk, kind, session).tree.entryCount).toBe(session.tree.entryCount);
    say(session, null);
    say(session, "a");
    disk.set({ kind: "fail", at: 1, errno: "EIO" });
    await expect(session.commit()).rejects.toThrow();
    disk.set(undefined);
    expect([leafOf(session, null), leafOf(session, "a")]).toEqual([shared, a]);
    await session.keepPosition();
    const again = reopened(disk, kind, session);
    expect([leafOf(again, null), leafOf(again, "a")]).toEqual([shared, a]);
  });

  test("answer a repeated key with what it wrote, whichever head repeats it", async () => {
    const { disk, session } = await made(kind);
    const { ids } = session.at("a").append([said()], "k");
    await session.commit();
    const again = reopened(disk, kind, session);
    expect(again.at("b").repeated("k")?.ids).toEqual(ids);
  });

  test("are guarded by their own leaf", async () => {
    const { session, second } = await made(kind);
    const a = say(session, "a");
    expect(() => session.at("a").guard(second)).toThrow(Failure);
    expect(() => session.at("a").guard(a)).not.toThrow();
    expect(() => session.guard(second)).not.toThrow();
  });

  acrossTiers(test, [6, kind === "v2" ? 15 : 25])("are where they are, whatever happens (%i)", (count) =>
    forSeedsAsync(count, async (random) => {
      const history = new History(random, kind, await made(kind));
      for (let step = 0; step < 30; step++) await history.step();
    }),
  );
});

/** Random histories of a shared leaf and three heads. Everything that was committed is found, and what failed is not. */
class History {
  private readonly random: Random;
  private readonly kind: Kind;
  private readonly disk: FaultDisk;
  private session: Session;
  private now: Map<string | null, string | null>;
  private durable: Map<string | null, string | null>;

  constructor(random: Random, kind: Kind, { disk, session }: { disk: FaultDisk; session: Session }) {
    [this.random, this.kind, this.disk, this.session] = [random, kind, disk, session];
    this.now = new Map([[null, session.leafId]]);
    this.durable = new Map(this.now);
  }

  private get ids(): string[] {
    return [...this.session.visible()].map((position) => this.session.log.nodes.id(position));
  }

  async step(): Promise<void> {
    const { random, session, now } = this;
    const head = random.pick([null, "a", "b", "c"]);
    const roll = random.int(12);
    const append = (drafts: Parameters<Session["append"]>[0], key?: string): void =>
      void now.set(head, session.at(head).append(drafts, key).ids.at(-1) as string);
    if (roll < 4) append([said()]);
    else if (roll === 4) {
      const label = makeValueDraft("label", { targetId: random.pick(this.ids), label: "l" });
      append([random.chance(0.5) ? label : makeValueDraft("session_info", { name: "n" })]);
    } else if (roll === 5) append([{ ...said(), parentId: random.pick(this.ids) }, said()], `k${this.ids.length}`);
    else if (roll === 6) {
      const leafId = random.chance(0.2) ? null : random.pick(this.ids);
      // A move to the present leaf writes nothing.
      const isMoved = leafOf(session, head) !== leafId;
      move(session, head, leafId);
      if (isMoved || head === null) now.set(head, leafId);
    } else if (roll === 7 && head !== null && now.has(head)) {
      session.retireHead(head);
      now.delete(head);
    } else if (roll === 8) await this.failToCommit();
    else if (roll === 9) await this.reopen();
    else await this.commit();
    this.check();
  }

  private async commit(): Promise<void> {
    await this.session.commit();
    this.durable = new Map(this.now);
  }

  private async failToCommit(): Promise<void> {
    const { disk, random } = this;
    disk.set({ kind: "fail", at: 1 + random.int(3), errno: "EIO" });
    try {
      await this.commit();
    } catch {
      disk.set(undefined);
      this.now = new Map(this.durable);
      await this.session.keepPosition();
    }
    disk.set(undefined);
  }

  /** Opens it as after a crash, or once it was left; in that case without the state folder. */
  private async reopen(): Promise<void> {
    await this.commit();
    if (this.random.chance(0.5)) {
      await this.session.leave();
      for (const path of this.disk.paths().filter((path) => path.startsWith(STATE))) this.disk.remove(path);
    }
    this.session = reopened(this.disk, this.kind, this.session);
  }

  private check(): void {
    const { session, now } = this;
    for (const head of [null, "a", "b", "c"])
      expect(leafOf(session, head), String(head)).toBe(now.has(head) ? now.get(head) : now.get(null));
    const listed = session.heads.list().map(({ name, leaf }) => [name, session.idOrNull(leaf)]);
    expect(listed.sort()).toEqual([...now].filter(([name]) => name !== null).sort());
  }
}

describe("entries of heads in a file", () => {
  const file = (lines: string) => fileText(headerText(), ...sketch(lines));
  /** The shared leaf and those of heads, by their numbers. */
  const leavesOf = (session: Session, ...heads: string[]): number[] =>
    [null, ...heads].map((head) => Number.parseInt(leafOf(session, head) as string, 16) - 0xa0000000);

  test.each([
    ["of another session", "a/other"],
    ["of no valid name", ".a"],
    ["of an empty name", ""],
    ["of a long name", "n".repeat(65)],
    ["of a name that is no text", "7"],
  ])("%s are entries like all others", (_, head) => {
    const session = openOn(diskWith(file(`0 1 2 H3<0:${head}`).replace('"head":"7"', '"head":7')));
    expect([leavesOf(session), session.heads.list()]).toEqual([[3], []]);
  });

  test("that is damaged give way to the ones before", () => {
    const torn = sketch("H4<3:a")[0].slice(0, -20);
    const session = openOn(diskWith(file("0 1 2 H3<0:a") + fileText(torn, ...sketch("5<2"))));
    expect(leavesOf(session, "a")).toEqual([5, 3]);
  });

  test("are followed where another program wrote them meanwhile", () => {
    const disk = diskWith(file("0 1 2 H3<0:a"));
    const session = openOn(disk);
    session.heads.setOwn("a");
    const fd = disk.openAppend(FILE);
    disk.write(fd, toBytes(fileText(...sketch("H4<3:a H5<4:b 6<2"))));
    disk.close(fd);
    session.refresh();
    expect([session.leafId, ...leavesOf(session, "b")]).toEqual([id(4), 6, 5]);
  });

  test("stay where they are when another program rewrote the file", () => {
    const disk = diskWith(file("0 1 2 H3<0:a H4<3:b"));
    const session = openOn(disk);
    session.heads.setOwn("a");
    disk.put(FILE, toBytes(file("0 1 H3<0:a H4<3:b")));
    session.refresh();
    expect(leavesOf(session, "a", "b").slice(1)).toEqual([3, 4]);
    expect(session.leafId).toBe(id(3));
    disk.put(FILE, toBytes(fileText(headerText({ cwd: "/x" }), ...chain(2))));
    session.refresh();
    expect([session.leafId, leafOf(session, "b")]).toEqual([id(1), id(1)]);
  });

  acrossTiers(test, [100, 1000])("are found in a session of many heads, the last of each (%i)", (count) => {
    const lines = Array.from({ length: 2 * count }, (_, n) => `H${3 + n}<2:h${n % count}`);
    const session = openOn(diskWith(file(`0 1 2 ${lines.join(" ")}`)));
    expect(leavesOf(session, "h17", "none")).toEqual([2, 3 + count + 17, 2]);
    expect(session.heads.list()).toHaveLength(count);
  });
});

test("a head without entries is where the shared leaf was when somebody came, while anybody is there", async () => {
  const disk = diskWith(fileText(headerText(), ...chain(3)), `${FOLDER}/session.jsonl`);
  const session = openOn(disk);
  session.heads.setOwn("a");
  say(session, null);
  await session.commit();
  expect(session.leafId).toBe(id(2));
  expect(session.heads.list()).toMatchObject([{ name: "a", users: 1 }]);
  session.heads.setOwn(null);
  expect(session.heads.list()).toEqual([]);
  expect(leafOf(session, "a")).toBe(session.sharedLeafId);
});
