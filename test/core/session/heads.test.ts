/** Heads: leaves of their own beside the shared one, kept in the entries; on both stores. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { draftOfValues } from "../../../src/core/format/entry.ts";
import { bytesOf, parse } from "../../../src/core/json/json.ts";
import type { Session } from "../../../src/core/session/session.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import { FaultDisk } from "../../support/disk.ts";
import { chain, entryText, fileText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { diskWith, FILE, FOLDER, openOn, STATE, workspaceOn } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;
type Kind = (typeof STORES)[number];

const said = (text = "more") => draftOfValues("message", { message: { role: "user", content: text } });

/** Appends through a head; returns the id. */
function say(session: Session, head: string | null, text?: string): string {
  return session.heads.at(head, () => session.append([said(text)]).ids[0]);
}

function move(session: Session, head: string | null, leafId: string | null): void {
  session.heads.at(head, () => session.moveLeaf(leafId === null ? ROOT : session.position(leafId)));
}

function leafOf(session: Session, head: string | null): string | null {
  return session.heads.at(head, () => session.leafId);
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
  test("grow a branch each, and the shared leaf stays where it is", async () => {
    const { disk, session, second } = await made(kind);
    const a = say(session, "a");
    move(session, "b", null);
    const b = say(session, "b");
    const a2 = say(session, "a");
    await session.commit();
    for (const one of [session, reopened(disk, kind, session)]) {
      expect([leafOf(one, null), leafOf(one, "a"), leafOf(one, "b")]).toEqual([second, a2, b]);
      expect(one.entry(one.position(a)).parentId).toBe(second);
      expect(one.entry(one.position(b)).parentId).toBeNull();
      expect(one.entry(one.position(a2)).parentId).toBe(a);
      expect(one.heads.list().map(({ name, leaf }) => [name, one.idOrNull(leaf)])).toEqual([
        ["a", a2],
        ["b", b],
      ]);
    }
  });

  test("keep a move that no entry followed, also to the place before the first", async () => {
    const { disk, session, first, second } = await made(kind);
    say(session, "a");
    move(session, "a", first);
    say(session, "b");
    move(session, "b", null);
    await session.commit();
    const again = reopened(disk, kind, session);
    expect([leafOf(again, null), leafOf(again, "a"), leafOf(again, "b")]).toEqual([second, first, null]);
    expect(again.tree.entryCount).toBe(4);
  });

  test("set names and labels, which move no other leaf", async () => {
    const { disk, session, first, second } = await made(kind);
    session.heads.at("a", () => session.append([draftOfValues("label", { targetId: first, label: "here" })]));
    session.heads.at("a", () => session.append([draftOfValues("session_info", { name: "named" })]));
    await session.commit();
    const again = reopened(disk, kind, session);
    expect(leafOf(again, null)).toBe(second);
    expect(again.name).toBe("named");
    expect(again.diagnostics).toEqual([]);
  });

  test("do not lose a shared leaf that only the state folder had", async () => {
    const { disk, session, first } = await made(kind);
    move(session, null, first);
    await session.commit();
    say(session, "a");
    await session.commit();
    for (const path of disk.paths().filter((path) => path.startsWith(`${STATE}/leaves`))) disk.remove(path);
    expect(leafOf(reopened(disk, kind, session), null)).toBe(first);
  });

  test("go back together when a commit fails", async () => {
    const { disk, session, first, second } = await made(kind);
    const a = say(session, "a");
    await session.commit();
    say(session, "a");
    say(session, "b");
    move(session, null, first);
    disk.set({ kind: "fail", at: 1, errno: "EIO" });
    await expect(session.commit()).rejects.toThrow();
    disk.set(undefined);
    expect([leafOf(session, null), leafOf(session, "a"), leafOf(session, "b")]).toEqual([second, a, second]);
    const again = say(session, "a");
    await session.commit();
    expect(session.entry(session.position(again)).parentId).toBe(a);
    expect(reopened(disk, kind, session).heads.list()).toHaveLength(1);
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

  test("are not those of a fork or a clone, whose leaf is its last entry", async () => {
    const { disk, session } = await made(kind);
    const a = say(session, "a");
    await session.commit();
    const fork = await workspaceOn(disk, kind).fork(session, session.position(a));
    expect(fork.leafId).toBe(a);
    expect(fork.heads.list()).toEqual([]);
    expect(leafOf(fork, "a")).toBe(a);
  });

  test("end when they are retired, and begin again at the shared leaf", async () => {
    const { disk, session, second } = await made(kind);
    const a = say(session, "a");
    session.retireHead("a");
    await session.commit();
    for (const one of [session, reopened(disk, kind, session)]) {
      expect(one.heads.list()).toEqual([]);
      expect([leafOf(one, null), leafOf(one, "a")]).toEqual([second, second]);
      expect(one.find(a)).toBeGreaterThan(0);
      expect(() => one.retireHead("a")).toThrow(Failure);
    }
    const anew = say(session, "a");
    await session.commit();
    expect(leafOf(reopened(disk, kind, session), "a")).toBe(anew);
  });

  test("answer a repeated key with what it wrote, whichever head repeats it", async () => {
    const { disk, session } = await made(kind);
    const { ids } = session.heads.at("a", () => session.append([said()], "k"));
    await session.commit();
    const again = reopened(disk, kind, session);
    expect(again.heads.at("b", () => again.repeated("k"))?.ids).toEqual(ids);
  });

  test("are guarded by their own leaf", async () => {
    const { session, second } = await made(kind);
    const a = say(session, "a");
    expect(() => session.heads.at("a", () => session.guard(second))).toThrow(Failure);
    expect(() => session.heads.at("a", () => session.guard(a))).not.toThrow();
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
  readonly random: Random;
  readonly kind: Kind;
  readonly disk: FaultDisk;
  session: Session;
  now: Map<string | null, string | null>;
  durable: Map<string | null, string | null>;

  constructor(random: Random, kind: Kind, { disk, session }: { disk: FaultDisk; session: Session }) {
    this.random = random;
    this.kind = kind;
    this.disk = disk;
    this.session = session;
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
    if (roll < 4) now.set(head, say(session, head));
    else if (roll === 4) {
      const draft = random.chance(0.5)
        ? draftOfValues("label", { targetId: random.pick(this.ids), label: "l" })
        : draftOfValues("session_info", { name: "n" });
      now.set(
        head,
        session.heads.at(head, () => session.append([draft]).ids[0]),
      );
    } else if (roll === 5) {
      const parentId = random.pick(this.ids);
      const { ids } = session.heads.at(head, () =>
        session.append([{ ...said(), parentId }, said()], `k${this.ids.length}`),
      );
      now.set(head, ids[1]);
    } else if (roll === 6) {
      const leafId = random.chance(0.2) ? null : random.pick(this.ids);
      // Who goes to where he is writes nothing.
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
    const names = session.heads.list().map(({ name }) => name);
    expect(names.sort()).toEqual([...now.keys()].filter((name) => name !== null).sort());
  }
}

describe("entries of heads in a file", () => {
  const by = (head: unknown, session = SESSION) => ({ _batch: { session, head, index: 0, count: 1 } });
  const message = (n: number, parent: number | null, more = {}) =>
    entryText("message", id(n), parent === null ? null : id(parent), {
      ...more,
      message: { role: "user", content: "x" },
    });
  const open = (...lines: string[]) => openOn(diskWith(fileText(headerText(), ...lines)));

  test("of another session are entries like all others", () => {
    const session = open(...chain(3), message(3, 0, by("a", "other")));
    expect(session.leafId).toBe(id(3));
    expect(session.heads.list()).toEqual([]);
  });

  test.each([
    ["of no valid name", "../a"],
    ["of an empty name", ""],
    ["of a name that is none", 7],
    ["of a long name", "n".repeat(65)],
  ])("%s are entries like all others", (_, head) => {
    const session = open(...chain(3), message(3, 0, by(head)));
    expect(session.leafId).toBe(id(3));
    expect(session.heads.list()).toEqual([]);
  });

  test("that is damaged give way to the ones before", () => {
    const torn = message(4, 3, by("a")).slice(0, -20);
    const session = open(...chain(3), message(3, 0, by("a")), torn, message(5, 2));
    expect(leafOf(session, "a")).toBe(id(3));
    expect(session.leafId).toBe(id(5));
  });

  test("are followed where another program wrote them meanwhile", () => {
    const disk = diskWith(fileText(headerText(), ...chain(3), message(3, 0, by("a"))));
    const session = openOn(disk);
    session.heads.stand("a");
    const fd = disk.openAppend(FILE);
    disk.write(fd, bytesOf(fileText(message(4, 3, by("a")), message(5, 4, by("b")), userText(id(6), id(2)))));
    disk.close(fd);
    session.refresh();
    expect(session.leafId).toBe(id(4));
    expect([leafOf(session, "b"), session.sharedLeafId]).toEqual([id(5), id(6)]);
  });

  test("stay where they are when another program rewrote the file", () => {
    const lines = [...chain(3), message(3, 0, by("a")), message(4, 3, by("b"))];
    const disk = diskWith(fileText(headerText(), ...lines));
    const session = openOn(disk);
    session.heads.stand("a");
    disk.put(FILE, bytesOf(fileText(headerText(), ...chain(2), ...lines.slice(3))));
    session.refresh();
    expect([session.leafId, leafOf(session, "b")]).toEqual([id(3), id(4)]);
    disk.put(FILE, bytesOf(fileText(headerText({ cwd: "/x" }), ...chain(2))));
    session.refresh();
    expect([session.leafId, leafOf(session, "b")]).toEqual([id(1), id(1)]);
  });

  acrossTiers(test, [100, 1000])("are found in a session of many heads, the last of each (%i)", (count) => {
    const lines = Array.from({ length: 2 * count }, (_, n) => message(3 + n, 2, by(`h${n % count}`)));
    const session = open(...chain(3), ...lines);
    expect([session.leafId, leafOf(session, "h17"), leafOf(session, "none")]).toEqual([
      id(2),
      id(3 + count + 17),
      id(2),
    ]);
    expect(session.heads.list()).toHaveLength(count);
  });

  test("are marked as the append of this session, by this head", () => {
    const disk = diskWith(fileText(headerText(), ...chain(3)));
    const session = openOn(disk);
    const { lines } = session.heads.at("a", () => session.append([said()], "k"));
    expect((parse(lines[0]) as { _batch: object })._batch).toEqual({
      session: SESSION,
      key: "k",
      head: "a",
      index: 0,
      count: 1,
    });
  });
});

test("a head without entries is where the shared leaf was when somebody came, while anybody is there", async () => {
  const disk = diskWith(fileText(headerText(), ...chain(3)), `${FOLDER}/session.jsonl`);
  const session = openOn(disk);
  session.heads.stand("a");
  say(session, null);
  await session.commit();
  expect(session.leafId).toBe(id(2));
  expect(session.heads.list()).toMatchObject([{ name: "a", users: 1 }]);
  session.heads.stand(null);
  expect(session.heads.list()).toEqual([]);
  expect(leafOf(session, "a")).toBe(session.sharedLeafId);
});
