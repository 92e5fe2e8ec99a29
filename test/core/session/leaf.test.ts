/** The leaf as a whole: what an opening finds after whatever has happened. */

import { describe, expect, test } from "vitest";
import type { Failure } from "../../../src/core/failure.ts";
import { type Draft, makeValueDraft } from "../../../src/core/format/entry.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { diskWith, FILE, idsOf, openOn } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { containerWith, openV2 } from "../../support/v2.ts";

const said = makeValueDraft("message", { message: { role: "user", content: "more" } });
const file = (...lines: string[]) => fileText(headerText(), ...lines);

function writeMore(disk: FaultDisk, ...lines: string[]): void {
  const fd = disk.openAppend(FILE);
  disk.write(fd, toBytes(fileText(...lines)));
  disk.close(fd);
}

describe("an opening finds the leaf", () => {
  test("that was moved back to the file's, or recorded before the first write replaced the file, whatever fails", async () => {
    for (const header of [headerText(), headerText({ leafId: id(1) })])
      for (let at = 1; at < 40; at++) {
        const disk = diskWith(fileText(header, ...chain(3)));
        const session = openOn(disk);
        session.moveLeaf(0);
        await session.commit();
        if (header === headerText()) session.moveLeaf(2);
        const { leafId } = session;
        disk.set({ kind: "fail", at, errno: "EIO" });
        let isAppended = false;
        try {
          session.append([said]);
          isAppended = true;
          await session.commit();
        } catch {
          disk.set(undefined);
          if (!isAppended || header !== headerText()) expect(session.leafId).toBe(leafId);
          await (isAppended ? session.keepPosition() : session.commit());
        }
        disk.set(undefined);
        expect(openOn(disk).leafId, `operation ${at}`).toBe(session.leafId);
      }
  });
});

test("entries of others that are found where the session is left are told", async () => {
  const disk = diskWith(file(...chain(3)));
  const session = openOn(disk);
  session.moveLeaf(0);
  await session.commit();
  writeMore(disk, userText(id(9), id(2)));
  await session.suspend();
  expect(session.refresh()?.positions.map((position) => session.log.nodes.id(position))).toEqual([id(9)]);
});

/** Rule 3 of the reference (section 5), as it is written there. */
function leafIn(text: string): string | null {
  const entries = text
    .trimEnd()
    .split("\n")
    .slice(1)
    .map((line) => JSON.parse(line));
  const parents = new Map<string, string | null>(entries.map((entry) => [entry.id, entry.parentId]));
  const isContinued = (leafId: string): boolean => entries.some((entry) => entry.parentId === leafId && isShown(entry));
  const isShown = (entry: (typeof entries)[0]): boolean => entry.customType === undefined || isContinued(entry.id);
  const isMeta = ({ type }: { type: string }): boolean => type === "label" || type === "session_info";
  const decisive = entries.findLast((entry) => !isMeta(entry));
  const target = isShown(decisive) ? decisive.id : decisive.parentId;
  const last = entries.at(-1);
  if (last === decisive) return target;
  for (let at = last.id; at !== undefined && at !== null; at = parents.get(at)) if (at === target) return last.id;
  if (target !== null) return target;
  // Before the first entry there are only labels and names of its own.
  for (let at = last; at !== undefined; at = entries.find(({ id }) => id === at.parentId)) if (!isMeta(at)) return null;
  return last.id;
}

/**
 * Random histories. The model knows three rules: an append takes the leaf along, another program only where it
 * continues it, and a failed commit puts it back. An opening finds the committed entries; after a leave, the file alone
 * has the state.
 */
class History {
  readonly random: Random;
  readonly disk = diskWith(file(...chain(3)));
  readonly session = openOn(this.disk);
  leaf: string | null = id(2);
  durable: string | null = id(2);
  private foreign = 100;
  /** Ids and parents of entries of other programs that the session has not seen. */
  private unseen: { id: string; parent: string | null }[] = [];

  constructor(random: Random) {
    this.random = random;
  }

  get ids(): string[] {
    return [...this.session.visible()].map((position) => this.session.log.nodes.id(position));
  }

  draft(): Draft {
    const { random } = this;
    const parentId = random.chance(0.6) ? undefined : random.chance(0.1) ? null : random.pick(this.ids);
    const label = makeValueDraft("label", { targetId: random.pick(this.ids), label: "l" });
    return { ...random.pick([said, said, label, makeValueDraft("session_info", { name: "n" })]), parentId };
  }

  async append(): Promise<void> {
    const drafts = Array.from({ length: this.random.chance(0.7) ? 1 : 3 }, () => this.draft());
    try {
      if (this.session.log.lock.acquire()) await this.refresh();
      // Entries that others wrote since then come first, and do not take the leaf along.
      this.leaf = this.session.append(drafts).ids.at(-1) as string;
      this.unseen = [];
    } catch (error) {
      if (!this.disk.struck) throw error;
    }
  }

  move(): void {
    this.leaf = this.random.chance(0.1) ? null : this.random.pick(this.ids);
    this.session.moveLeaf(this.leaf === null ? ROOT : this.session.position(this.leaf));
  }

  writeAsOther(): void {
    const { random, session } = this;
    const parents = [session.leafId, ...this.ids, ...this.unseen.map((entry) => entry.id)];
    const entry = { id: id(this.foreign++), parent: random.chance(0.4) ? session.leafId : random.pick(parents) };
    this.unseen.push(entry);
    const lines = random.chance(0.7)
      ? userText(entry.id, entry.parent)
      : entryText("label", entry.id, entry.parent, { targetId: id(0), label: "l" });
    writeMore(this.disk, lines);
  }

  async refresh(): Promise<void> {
    try {
      this.session.refresh();
    } catch (error) {
      if (this.disk.struck) throw error;
      // The log takes the file for another while ours is not durable.
      expect([(error as Failure).name, this.session.isDurable]).toEqual(["content_modified", false]);
      await this.commit();
      this.session.refresh();
    }
    const isDurable = this.leaf === this.durable;
    for (const entry of this.unseen) if (entry.parent === this.leaf) this.leaf = entry.id;
    if (isDurable || this.session.isDurable) this.durable = this.leaf;
    this.unseen = [];
  }

  /** Has an operation of the disk fail during some work. */
  async failing(work: () => unknown): Promise<void> {
    // Entries that others wrote after ours keep ours in the file, whether the commit fails or not.
    await this.refresh();
    this.disk.set({ kind: "fail", at: 1 + this.random.int(8), errno: "EIO" });
    await work();
    this.disk.set(undefined);
  }

  async commit(meanwhile?: () => void): Promise<void> {
    const { leaf } = this;
    const { isDurable: settled } = this.session;
    try {
      const done = this.session.commit();
      expect(this.session.isDurable).toBe(settled);
      meanwhile?.();
      await done;
      this.durable = leaf;
    } catch (error) {
      if (!this.disk.struck) throw error;
      this.disk.set(undefined);
      this.leaf = this.durable;
      expect(this.session.leafId).toBe(this.leaf);
      await this.session.keepPosition();
    }
  }

  async step(): Promise<void> {
    const { random } = this;
    const what = random.int(10);
    if (what < 3) await this.append();
    else if (what < 5) this.move();
    else if (what === 5) this.writeAsOther();
    else if (what === 6) await this.refresh();
    else if (what === 7)
      await this.failing(() => (random.chance(0.5) ? this.append() : this.commit(() => this.move())));
    else {
      await this.refresh();
      await this.commit();
      expect(openOn(this.disk).leafId, "an opening").toBe(this.leaf);
      expect(this.session.isDurable).toBe(true);
      const alone = this.disk.content(FILE) as Uint8Array;
      expect(openOn(diskWith(alone)).leafId, "without records").toBe(leafIn(decodeText(alone)));
      if (what === 9) await this.session.leave();
      if (what === 9)
        expect(openOn(diskWith(this.disk.content(FILE) as Uint8Array)).leafId, "the file alone").toBe(this.leaf);
    }
    expect(this.session.leafId).toBe(this.leaf);
    // The host gets the event at once.
    if (this.session.isDurable) this.durable = this.leaf;
  }
}

acrossTiers(test, [10, 40])(
  "whatever happens, the leaf is where it was put, and an opening finds what was committed (%i)",
  async (count) => {
    await forSeedsAsync(count, async (random) => {
      const history = new History(random);
      for (let step = 0; step < 25; step++) await history.step();
    });
  },
);

acrossTiers(test, ["jsonl", "v2"])(
  "a commit that records the leaf while another fails, which takes back what both wrote, fails too (%s)",
  async (kind) => {
    const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(file(...chain(3)));
    const session = kind === "v2" ? openV2(disk) : openOn(disk);
    let fail = (): void => {};
    disk.sync = () =>
      new Promise<void>((_, reject) => {
        fail = () => reject(Object.assign(new Error("the medium fails"), { code: "EIO" }));
      });
    session.append([said]);
    const first = session.commit();
    disk.sync = async (fd) => {
      fail();
      await expect(first).rejects.toMatchObject({ name: "storage_failed" });
      disk.syncNow(fd);
    };
    session.append([said]);
    session.moveLeaf(0);
    await expect(session.commit()).rejects.toMatchObject({ name: "storage_failed" });
    expect([session.leafId, idsOf(session.log), session.isDurable]).toEqual([id(2), [0, 1, 2].map(id), true]);
    session.append([said]);
    await session.commit();
    session.close();
  },
);
