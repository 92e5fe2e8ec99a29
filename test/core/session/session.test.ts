/** A session: what may be appended, where the leaf stands after every opening, what a key remembers. */

import { describe, expect, test } from "vitest";
import type { Draft } from "../../../src/core/format/entry.ts";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { chain, entryText, fileText, headerText, id, linesOf, SESSION, userText } from "../../support/lines.ts";
import {
  diskWith,
  FILE,
  idsOf,
  messagesAt,
  openOn,
  STATE,
  sessionOf,
  textsOf,
  workspaceOn,
} from "../../support/sessions.ts";

const draft = (type: string, rest: Record<string, unknown>, more: Partial<Draft> = {}): Draft => {
  const text = JSON.stringify(rest).slice(1, -1);
  return { type, ...more, rest: bytesOf(text === "" ? "" : `,${text}`) };
};
const said = (text: string, more: Partial<Draft> = {}) =>
  draft("message", { message: { role: "user", content: text } }, more);
const labelled = (target: string) => draft("label", { targetId: target, label: "here" });
const failing = (name: string) => expect.objectContaining({ name });

const file = (...lines: string[]) => fileText(headerText(), ...lines);
const contentOf = (disk: FaultDisk) => textOf(disk.content(FILE) as Uint8Array);

describe("appending", () => {
  test("continues the leaf, each entry the one before", async () => {
    const session = await sessionOf(chain(2));
    const { ids, oldLeafId, branchChanged } = session.append([said("a"), said("b"), said("c")]);
    expect([oldLeafId, branchChanged, session.leafId]).toEqual([id(1), false, ids[2]]);
    expect([...session.tree.path()]).toEqual([0, 1, 2, 3, 4]);
    for (const entryId of ids) expect(entryId).toMatch(/^[0-9a-f]{8}$/);
    expect(session.entry(2)).toMatchObject({ type: "message", id: ids[0], parentId: id(1) });
    expect(new Date(session.entry(2).timestamp).toISOString()).toBe(session.entry(2).timestamp);
  });

  test("goes where a given parent says, to the root too, and the leaf follows", async () => {
    const session = await sessionOf(chain(3));
    expect(session.append([said("a", { parentId: id(0) })]).branchChanged).toBe(true);
    expect([...session.tree.path()]).toEqual([0, 3]);
    expect(session.append([said("b", { parentId: null })]).branchChanged).toBe(true);
    expect([...session.tree.path()]).toEqual([4]);
    expect(session.append([said("c", { parentId: session.leafId })]).branchChanged).toBe(false);
    const { ids } = session.append([said("d", { id: "mine" }), said("e"), said("f", { parentId: "mine" })]);
    expect(session.log.nodes.parent(session.position(ids[2]))).toBe(session.position("mine"));
  });

  test("takes ids and times that are given", async () => {
    const session = await sessionOf([]);
    session.append([said("a", { id: "My_id-1", timestamp: "2020-01-01T00:00:00Z" })]);
    expect(session.entry(0)).toMatchObject({ id: "My_id-1", parentId: null, timestamp: "2020-01-01T00:00:00Z" });
  });

  test.each([
    ["an id that is taken", [said("a", { id: id(1) })], "invalid_entry"],
    ["an id given twice", [said("a", { id: "x" }), said("b", { id: "x" })], "invalid_entry"],
    ["an empty id", [said("a", { id: "" })], "invalid_entry"],
    ["an id with a tilde", [said("a", { id: "a~2" })], "invalid_entry"],
    ["an id with a slash", [said("a", { id: "../a" })], "invalid_entry"],
    ["an id that is too long", [said("a", { id: "a".repeat(129) })], "invalid_entry"],
    ["a parent that is not there", [said("a"), said("b", { parentId: "nowhere" })], "entry_not_found"],
    ["a parent that comes later", [said("a", { parentId: "x" }), said("b", { id: "x" })], "entry_not_found"],
    ["an empty parent", [said("a", { parentId: "" })], "entry_not_found"],
  ])("refuses %s, and nothing has changed", async (_, drafts, name) => {
    const disk = diskWith(file(...chain(2)));
    const session = openOn(disk);
    expect(() => session.append(drafts)).toThrow(failing(name));
    expect([session.leafId, idsOf(session.log), contentOf(disk)]).toEqual([id(1), [id(0), id(1)], file(...chain(2))]);
    expect(session.tree.entryCount).toBe(2);
  });

  test("refuses an id that others name as their missing parent: it would change what is above them", async () => {
    const session = openOn(diskWith(file(userText(id(1), "lost1"), userText(id(2), id(1)))));
    expect(() => session.append([said("a", { id: "lost1" })])).toThrow(failing("invalid_entry"));
    session.append([said("b")]);
    expect(messagesAt(session)).toHaveLength(3);
  });

  test("marks several entries, or a key, as one batch, right after the time", async () => {
    const session = await sessionOf([]);
    session.append([said("a")]);
    session.append([said("b"), said("c")]);
    session.append([said("d")], "key 1");
    const batches = textsOf(session.log).map(
      (text) => /"timestamp":"[^"]*",("_batch":\{[^}]*\},)?"message"/.exec(text)?.[1],
    );
    expect(batches).toEqual([
      undefined,
      `"_batch":{"session":"${SESSION}","index":0,"count":2},`,
      `"_batch":{"session":"${SESSION}","index":1,"count":2},`,
      `"_batch":{"session":"${SESSION}","key":"key 1","index":0,"count":1},`,
    ]);
  });

  test("guards say why not", async () => {
    const session = await sessionOf(chain(2));
    expect(() => session.guard(undefined)).not.toThrow();
    expect(() => session.guard(id(1))).not.toThrow();
    expect(() => session.guard(id(0))).toThrow(failing("content_modified"));
    expect(() => session.guard(null)).toThrow(failing("content_modified"));
  });

  test("setup alone makes no file", async () => {
    const disk = diskWith("", "/elsewhere/x");
    const session = workspaceOn(disk, "jsonl").create({ name: "a name" });
    session.append([draft("model_change", { provider: "p", modelId: "m" })]);
    session.append([draft("thinking_level_change", { thinkingLevel: "high" })]);
    await session.commit();
    expect([session.log.persisted, disk.paths()]).toEqual([false, ["/elsewhere/x"]]);
    expect([session.name, session.model()?.id, session.thinkingLevel()]).toEqual(["a name", "m", "high"]);
    session.append([said("a")]);
    await session.commit();
    expect(linesOf(disk.content(session.file as string) as Uint8Array)).toHaveLength(5);
  });
});

describe("keys", () => {
  test("are remembered across openings, with what was answered", async () => {
    const disk = diskWith(file(...chain(1)));
    const session = openOn(disk);
    expect(session.repeated("one")).toBeUndefined();
    const first = session.append([said("a"), said("b")], "one");
    const second = session.append([said("c")], "two");
    expect(session.repeated("one")).toMatchObject({ ids: first.ids });
    await session.commit();
    const again = openOn(disk);
    expect(again.repeated("one")).toMatchObject({ ids: first.ids, leafId: first.ids[1] });
    expect(again.repeated("two")).toMatchObject({ ids: second.ids });
    expect(again.repeated("three")).toBeUndefined();
    expect(again.repeated("__proto__")).toBeUndefined();
  });

  test("of another session, as forks carry them, are not ours", async () => {
    const disk = diskWith(file(...chain(1)));
    const session = openOn(disk);
    session.append([said("a")], "one");
    await session.commit();
    const fork = await workspaceOn(disk, "jsonl").fork(session, session.tree.leaf);
    expect(fork.log.nodes.count).toBe(2);
    expect(fork.repeated("one")).toBeUndefined();
  });

  test("of a torn batch are forgotten, and a retry writes it whole, once", async () => {
    const disk = diskWith(file(...chain(1)));
    const session = openOn(disk);
    session.append([said("a"), said("b"), said("c")], "one");
    await session.commit();
    const lines = linesOf(disk.content(FILE) as Uint8Array);
    for (const cut of [1, 2]) {
      const torn = diskWith(fileText(...lines.slice(0, 2 + cut)));
      const again = openOn(torn);
      expect(again.repeated("one")).toBeUndefined();
      expect(again.leafId).toBe(id(0));
      const { ids } = again.append([said("a"), said("b"), said("c")], "one");
      await again.commit();
      const last = openOn(torn);
      expect(idsOf(last.log)).toEqual([id(0), ...ids]);
      expect(last.repeated("one")).toMatchObject({ ids });
      expect(last.diagnostics).toEqual([]);
    }
  });
});

describe("names", () => {
  test("are the last in file order, wherever they stand; an emptied one is none", async () => {
    const named = (n: number, parent: number, name: unknown) => entryText("session_info", id(n), id(parent), { name });
    const session = await sessionOf([...chain(2), named(2, 1, "one"), named(3, 0, " two ")]);
    expect(session.name).toBe("two");
    expect((await sessionOf([...chain(2), named(2, 1, "one"), named(3, 2, "")])).name).toBeNull();
    expect((await sessionOf([...chain(2), named(2, 1, "one"), named(3, 2, " ")])).name).toBeNull();
    expect((await sessionOf([])).name).toBeNull();
    session.append([draft("session_info", { name: "three" })]);
    expect(session.name).toBe("three");
  });
});

describe("the leaf after opening", () => {
  const leafOf = (content: string) => openOn(diskWith(content)).leafId;
  const label = (n: number, parent: number | null) =>
    entryText("label", id(n), parent === null ? null : id(parent), { targetId: id(0), label: "l" });
  const info = (n: number, parent: number) => entryText("session_info", id(n), id(parent), { name: "n" });
  const marker = (n: number, parent: number | null, data?: unknown) =>
    entryText("custom", id(n), parent === null ? null : id(parent), {
      customType: "pi-session-server.leaf",
      ...(data === undefined ? {} : { data }),
    });

  test("is the last entry", () => {
    expect(leafOf(file(...chain(3)))).toBe(id(2));
    expect(leafOf(file(...chain(3), userText(id(9), id(0))))).toBe(id(9));
    expect(leafOf(file(...chain(3), entryText("unheard_of", id(9), id(0))))).toBe(id(9));
    expect(leafOf(file())).toBeNull();
  });

  test("moves along with labels and names at the tip", () => {
    expect(leafOf(file(...chain(3), label(3, 2)))).toBe(id(3));
    expect(leafOf(file(...chain(3), label(3, 2), info(4, 3), label(5, 4)))).toBe(id(5));
    expect(leafOf(file(label(0, null), label(1, 0)))).toBe(id(1));
  });

  test("is not moved by labels and names on other branches, and that is said", () => {
    for (const lines of [[label(3, 0)], [info(3, 0)], [label(3, 0), info(4, 3)], [label(3, 2), label(4, 0)]]) {
      const session = openOn(diskWith(file(...chain(3), ...lines)));
      expect(session.leafId).toBe(id(2));
      expect(session.diagnostics.map(({ kind }) => kind)).toEqual(["ambiguous_leaf"]);
      expect(messagesAt(session)).toHaveLength(3);
    }
  });

  test("is what a marker of ours points at, and the marker is no part of the tree", () => {
    const session = openOn(diskWith(file(...chain(3), marker(3, 0))));
    expect([session.leafId, session.tree.entryCount, [...session.tree.children(0)]]).toEqual([id(0), 3, [1]]);
    expect(session.log.nodes.count).toBe(4);
    expect(() => session.position(id(3))).toThrow(failing("entry_not_found"));
    expect([...session.visible()]).toEqual([0, 1, 2]);
    expect(leafOf(file(...chain(3), marker(3, null, { leafId: null })))).toBeNull();
    expect(leafOf(file(...chain(3), marker(3, 0), label(4, 0)))).toBe(id(4));
    expect(leafOf(file(...chain(3), marker(3, null, { leafId: null }), label(4, null)))).toBe(id(4));
  });

  test("continues a marker that another program continued from", () => {
    const session = openOn(diskWith(file(...chain(3), marker(3, 0), userText(id(4), id(3)))));
    expect([session.leafId, session.tree.entryCount]).toEqual([id(4), 5]);
    expect(session.position(id(3))).toBe(3);
    expect(messagesAt(session)).toHaveLength(2);
  });

  test("is the one that the header names, if it is there", () => {
    const withLeaf = (leafId: unknown) => fileText(headerText({ leafId }), ...chain(3));
    expect(leafOf(withLeaf(id(1)))).toBe(id(1));
    expect(leafOf(withLeaf(""))).toBeNull();
    expect(leafOf(withLeaf("nowhere"))).toBe(id(2));
  });

  test("is where it was moved to, without a byte in the file", async () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    const before = disk.info(FILE);
    for (const [position, leafId] of [
      [0, id(0)],
      [ROOT, null],
      [1, id(1)],
    ] as const) {
      session.moveLeaf(position);
      await session.commit();
      expect([session.leafId, openOn(disk).leafId]).toEqual([leafId, leafId]);
      expect(disk.info(FILE)).toEqual(before);
    }
  });

  test("is not where it was recorded once the file has changed", async () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    session.moveLeaf(0);
    await session.commit();
    const fd = disk.openAppend(FILE);
    disk.write(fd, bytesOf(fileText(userText(id(9), id(2)))));
    disk.close(fd);
    expect(openOn(disk).leafId).toBe(id(9));
  });

  test("survives a record that is spoiled", async () => {
    for (const spoiled of ["", "{", "null", "1", '{"stamp":null,"leafId":5}', "[]"]) {
      const disk = diskWith(file(...chain(3)));
      const session = openOn(disk);
      session.moveLeaf(0);
      await session.commit();
      const record = disk.paths().find((path) => path.startsWith(STATE)) as string;
      disk.put(record, bytesOf(spoiled));
      expect(openOn(disk).leafId, spoiled).toBe(id(2));
    }
  });
});

describe("leaving a session", () => {
  async function left(content: string, moveTo: number | undefined): Promise<FaultDisk> {
    const disk = diskWith(content);
    const session = openOn(disk);
    if (moveTo !== undefined) session.moveLeaf(moveTo);
    await session.commit();
    await session.leave();
    session.close();
    return disk;
  }

  test("where the file alone gives the leaf writes nothing", async () => {
    expect(contentOf(await left(file(...chain(3)), undefined))).toBe(file(...chain(3)));
    expect(contentOf(await left(file(...chain(3)), 2))).toBe(file(...chain(3)));
  });

  test.each([[0], [1], [ROOT]])(
    "at another leaf (%i) writes one marker, which every reader follows",
    async (position) => {
      const disk = await left(file(...chain(3)), position);
      const lines = linesOf(disk.content(FILE) as Uint8Array);
      expect(lines.slice(0, 4)).toEqual([headerText(), ...chain(3)]);
      expect(lines).toHaveLength(5);
      expect(JSON.parse(lines[4])).toMatchObject({
        type: "custom",
        customType: "pi-session-server.leaf",
        parentId: position === ROOT ? null : id(position),
        ...(position === ROOT ? { data: { leafId: null } } : {}),
      });
      // Without our state folder, too.
      const alone = openOn(diskWith(contentOf(disk)));
      expect([alone.leafId, alone.tree.entryCount]).toEqual([position === ROOT ? null : id(position), 3]);
    },
  );

  test("again and again leaves one marker", async () => {
    const once = await left(file(...chain(3)), 0);
    const twice = await left(contentOf(once), undefined);
    expect(contentOf(twice)).toBe(contentOf(once));
  });

  test("that is read-only or has no file writes nothing", async () => {
    const session = await sessionOf(chain(3));
    session.moveLeaf(0);
    await session.commit();
    await session.leave();
    expect(session.log.nodes.count).toBe(3);
  });
});

describe("labels and names away from the tip", () => {
  test("are written behind a marker, so that they do not move the conversation for others", async () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    session.moveLeaf(0);
    await session.commit();
    session.append([labelled(id(0))]);
    await session.commit();
    const lines = linesOf(disk.content(FILE) as Uint8Array).slice(4);
    expect(lines.map((line) => [JSON.parse(line).type, JSON.parse(line).parentId])).toEqual([
      ["custom", id(0)],
      ["label", id(0)],
    ]);
    const again = openOn(diskWith(contentOf(disk)));
    expect([again.leafId, again.tree.entryCount, messagesAt(again).length]).toEqual([session.leafId, 4, 1]);
    expect(again.diagnostics).toEqual([]);
  });

  test("at the tip are written as they are", async () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    session.append([labelled(id(0)), draft("session_info", { name: "n" })]);
    await session.commit();
    expect(linesOf(disk.content(FILE) as Uint8Array)).toHaveLength(6);
    expect(openOn(disk).leafId).toBe(session.leafId);
  });
});

describe("a failed commit", () => {
  test("takes back entries, labels, name, leaf and counts as one", async () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    session.append([said("kept"), draft("session_info", { name: "kept" })]);
    await session.commit();
    const before = [session.leafId, session.name, session.tree.entryCount, session.messageCount(), contentOf(disk)];
    session.append(
      [labelled(id(0)), draft("session_info", { name: "gone" }), said("gone", { parentId: id(0) })],
      "key",
    );
    expect(session.repeated("key")).toBeDefined();
    disk.set({ kind: "fail", at: 1, errno: "EIO" });
    await expect(session.commit()).rejects.toThrow(failing("storage_failed"));
    disk.set(undefined);
    expect([session.leafId, session.name, session.tree.entryCount, session.messageCount(), contentOf(disk)]).toEqual(
      before,
    );
    expect([session.tree.labels.size, session.tree.branchCount, session.repeated("key")]).toEqual([0, 0, undefined]);
    session.append([said("again")], "key");
    await session.commit();
    expect(messagesAt(openOn(disk))).toHaveLength(5);
  });
});

describe("other programs", () => {
  const writeMore = (disk: FaultDisk, ...lines: string[]): void => {
    const fd = disk.openAppend(FILE);
    disk.write(fd, bytesOf(fileText(...lines)));
    disk.close(fd);
  };

  test("that continue the leaf take it along", () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    expect(session.refresh()).toBeNull();
    writeMore(disk, userText(id(3), id(2)), userText(id(4), id(3)));
    expect(session.refresh()).toEqual({ positions: [3, 4], lost: 0 });
    expect([session.leafId, messagesAt(session).length]).toEqual([id(4), 5]);
  });

  test("that continue elsewhere leave it where it is", () => {
    const disk = diskWith(file(...chain(3)));
    const session = openOn(disk);
    writeMore(disk, userText(id(3), id(0)));
    expect(session.refresh()).toEqual({ positions: [3], lost: 0 });
    expect([session.leafId, session.tree.branchCount]).toEqual([id(2), 1]);
  });

  test("that close a cycle do not make us go round in it", () => {
    const disk = diskWith(file(userText(id(1), id(2)), userText(id(3), id(1))));
    const session = openOn(disk);
    expect(messagesAt(session)).toHaveLength(2);
    writeMore(disk, userText(id(2), id(1)));
    session.refresh();
    expect(messagesAt(session).length).toBeGreaterThan(0);
    expect(session.diagnostics.map(({ kind }) => kind)).toContain("cycle");
  });

  test("that bring a missing parent complete the path", () => {
    const disk = diskWith(file(userText(id(2), id(1)), userText(id(3), id(2))));
    const session = openOn(disk);
    expect(messagesAt(session)).toHaveLength(2);
    writeMore(disk, userText(id(1), null));
    session.refresh();
    expect(messagesAt(session, session.position(id(3)))).toHaveLength(3);
  });
});

test("an operation that was noted while commits run is recorded as failed when its own commit fails", async () => {
  const session = openOn(diskWith(file(userText(id(1), null))));
  const failed: string[][] = [];
  let count = 0;
  session.operations = {
    note: () => `operation ${++count}`,
    flush: () => {},
    failed: (ids: string[]) => failed.push(ids),
  } as unknown as NonNullable<typeof session.operations>;
  const ends: { resolve: () => void; reject: (error: Error) => void }[] = [];
  session.log.commit = () => new Promise((resolve, reject) => ends.push({ resolve, reject }));
  const step = { do: "change", path: FILE, leaf: [null, null] } as const;
  const changed = (): Promise<void> => {
    session.note({ kind: "rename", text: "Named.", step });
    return session.commit();
  };
  const first = changed();
  const second = changed();
  await Promise.resolve();
  ends[0].resolve();
  await first;
  const third = changed();
  await Promise.resolve();
  ends[1].resolve();
  await second;
  ends[2].reject(new Error("disk full"));
  await expect(third).rejects.toThrow("disk full");
  expect(failed).toEqual([["operation 3"]]);
});
