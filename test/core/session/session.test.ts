/** A session: what may be appended, where the leaf stands after every opening, what a key remembers. */

import { describe, expect, test } from "vitest";
import type { Draft } from "../../../src/core/format/entry.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { chain, fileText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { diskWith, FILE, idsOf, messagesAt, openOn, STATE, sessionOf, textsOf } from "../../support/sessions.ts";
import { sketch } from "../../support/sketch.ts";

const draft = (type: string, rest: Record<string, unknown>, more: Partial<Draft> = {}): Draft => {
  const text = JSON.stringify(rest).slice(1, -1);
  return { type, ...more, rest: toBytes(text === "" ? "" : `,${text}`) };
};
const said = (text: string, more: Partial<Draft> = {}) =>
  draft("message", { message: { role: "user", content: text } }, more);
const named = (name: string) => draft("session_info", { name });
const failing = (name: string) => expect.objectContaining({ name });

const file = (...lines: string[]) => fileText(headerText(), ...lines);
const contentOf = (disk: FaultDisk) => decodeText(disk.content(FILE) as Uint8Array);
const disk = (text: string) => diskWith(file(...sketch(text)));
const writeMore = (disk: FaultDisk, text: string): void => {
  const fd = disk.openAppend(FILE);
  disk.write(fd, toBytes(fileText(...sketch(text))));
  disk.close(fd);
};

describe("appending", () => {
  // The others are refused in test/handlers/append.test.ts.
  test.each([
    ["an id with a slash", [said("a", { id: "../a" })], "invalid_entry"],
    // It would change the ancestors of entries that name it.
    ["an id that others name as their missing parent", [said("a", { id: "lost1" })], "invalid_entry"],
    ["a parent that comes later", [said("a", { parentId: "x" }), said("b", { id: "x" })], "entry_not_found"],
    ["an empty parent", [said("a", { parentId: "" })], "entry_not_found"],
  ])("refuses %s, and nothing has changed", async (_, drafts, name) => {
    const there = disk("0<lost1 1");
    const [session, content] = [openOn(there), contentOf(there)];
    expect(() => session.append(drafts)).toThrow(failing(name));
    expect([session.leafId, idsOf(session.log), contentOf(there)]).toEqual([id(1), [id(0), id(1)], content]);
    expect(session.tree.entryCount).toBe(2);
    session.append([said("b")]);
    expect(messagesAt(session)).toHaveLength(3);
  });

  test("marks several entries, or a key, as one batch, right after the time", async () => {
    const session = await sessionOf([]);
    session.append([said("a")]);
    session.append([said("b"), said("c")]);
    session.append([said("d")], "key 1");
    const batch = /"timestamp":"[^"]*",(?:"_batch":(\{[^}]*\}),)?"message"/;
    expect(textsOf(session.log).map((text) => batch.exec(text)?.[1])).toEqual([
      undefined,
      `{"session":"${SESSION}","index":0,"count":2}`,
      `{"session":"${SESSION}","index":1,"count":2}`,
      `{"session":"${SESSION}","key":"key 1","index":0,"count":1}`,
    ]);
  });
});

test.each([
  ["the last in file order, wherever it stands", "0 1 I2:one I3<0:\ttwo\t", "two"],
  ["none once it is emptied", "0 1 I2:one I3:", null],
  ["none when it is white space", "0 1 I2:one I3:\t", null],
  ["none without one", "", null],
])("the name is %s", async (_, lines, name) => {
  const session = await sessionOf(sketch(lines));
  expect(session.name).toBe(name);
  session.append([named("three")]);
  expect(session.name).toBe("three");
});

describe("the leaf after opening", () => {
  test.each([
    ["the last entry", "0 1 2", 2],
    ["the last entry, on whatever branch", "0 1 2 9<0", 9],
    ["the last entry, of whatever type", "0 1 2 X9<0", 9],
    ["none without entries", "", null],
    ["a label or a name at the tip", "0 1 2 L3:0 I4:n L5:0", 5],
    ["a label before the first entry", "L0:0 L1:0", 1],
    ["where a marker of ours points", "0 1 2 M3<0", 0],
    ["none where a marker points before the first", "0 1 2 M3<-:null", null],
    ["a label where a marker points", "0 1 2 M3<0 L4<0:0", 4],
    ["a label before the first entry, where a marker points", "0 1 2 M3<-:null L4<-:0", 4],
    ["what another program continued a marker with", "0 1 2 M3<0 4<3", 4],
  ])("is %s", (_, lines, leaf) => {
    expect(openOn(disk(lines)).leafId).toBe(leaf === null ? null : id(leaf));
  });

  test.each(["L3<0:0", "I3<0:n", "L3<0:0 I4<3:n", "L3<2:0 L4<0:0"])(
    "is not moved by labels and names on other branches (%s), and that is said",
    (lines) => {
      const session = openOn(disk(`0 1 2 ${lines}`));
      expect([session.leafId, messagesAt(session).length]).toEqual([id(2), 3]);
      expect(session.diagnostics.map(({ kind }) => kind)).toEqual(["ambiguous_leaf"]);
    },
  );

  test.each([
    [id(1), id(1)],
    ["", null],
    ["nowhere", id(2)],
  ])("is the one that the header names (%j), if it is there", (leafId, leaf) => {
    expect(openOn(diskWith(fileText(headerText({ leafId }), ...chain(3)))).leafId).toBe(leaf);
  });

  test.each(["", "{", "null", "1", '{"stamp":null,"leafId":5}', "[]"])(
    "survives a record that is %j",
    async (spoiled) => {
      const there = disk("0 1 2");
      const session = openOn(there);
      session.moveLeaf(0);
      await session.commit();
      const record = there.paths().find((path) => path.startsWith(STATE)) as string;
      there.put(record, toBytes(spoiled));
      expect(openOn(there).leafId).toBe(id(2));
    },
  );
});

test.each([undefined, 2, 0, 1, ROOT])(
  "leaving a session writes one marker where the file alone does not give the leaf, and else nothing (%j)",
  async (moveTo) => {
    const left = async (content: string, position?: number): Promise<string> => {
      const disk = diskWith(content);
      const session = openOn(disk);
      if (position !== undefined) session.moveLeaf(position);
      await session.commit();
      await session.leave();
      session.close();
      return contentOf(disk);
    };
    const content = file(...chain(3));
    const now = await left(content, moveTo);
    if (moveTo === undefined || moveTo === 2) return expect(now).toBe(content);
    expect(now.startsWith(content)).toBe(true);
    const parentId = moveTo === ROOT ? null : id(moveTo);
    const data = moveTo === ROOT ? { data: { leafId: null } } : {};
    const marker = { type: "custom", customType: "pi-session-server.leaf", parentId, ...data };
    expect(JSON.parse(now.slice(content.length))).toMatchObject(marker);
    // Without our state folder, too.
    const alone = openOn(diskWith(now));
    expect([alone.leafId, alone.tree.entryCount]).toEqual([parentId, 3]);
    // Once more leaves no other one.
    expect(await left(now)).toBe(now);
  },
);

test("another program that brings a missing parent completes the path", () => {
  const there = disk("2<1 3");
  const session = openOn(there);
  expect(session.refresh()).toBeNull();
  writeMore(there, "1<-");
  expect(session.refresh()).toEqual({ positions: [2], lost: 0 });
  expect([session.leafId, messagesAt(session).length, session.tree.branchCount]).toEqual([id(3), 3, 0]);
});

test("other programs that close a cycle do not make us go round in it", () => {
  const there = disk("1<2 3");
  const session = openOn(there);
  expect(messagesAt(session)).toHaveLength(2);
  writeMore(there, "2<1");
  session.refresh();
  expect(messagesAt(session).length).toBeGreaterThan(0);
  expect(session.diagnostics.map(({ kind }) => kind)).toContain("cycle");
});

test("an operation that was noted while commits run is recorded as failed when its own commit fails", async () => {
  const session = openOn(diskWith(file(userText(id(1), null))));
  const failed: string[][] = [];
  let count = 0;
  session.operations = {
    note: () => `operation ${++count}`,
    flush: () => {},
    settle: () => {},
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
