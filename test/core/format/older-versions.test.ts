/** Versions 1 and 2 read as version 3: the same ids at every opening, the source untouched until the first write. */

import { describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { fileText, headerText, id, linesOf, SESSION, TIME, userText } from "../../support/lines.ts";
import { diskWith, FILE, idsOf, jsonlOn, kindsOf, logOf, messagesAt, openOn, textsOf } from "../../support/sessions.ts";

const V1_HEADER = `{"type":"session","id":"${SESSION}","timestamp":"${TIME}","cwd":"/home/me","provider":"p","modelId":"m","thinkingLevel":"low"}`;

const said = (text: string) => `{"type":"message","timestamp":"${TIME}","message":{"role":"user","content":"${text}"}}`;
const compacted = (index: unknown) =>
  `{"type":"compaction","timestamp":"${TIME}","summary":"s","firstKeptEntryIndex":${JSON.stringify(index)},"tokensBefore":7}`;

async function appended(disk: FaultDisk): Promise<string[]> {
  const session = openOn(disk);
  session.append([{ type: "message", id: id(99), rest: toBytes(',"message":{"role":"user","content":"new"}') }]);
  await session.commit();
  session.close();
  return linesOf(disk.content(FILE) as Uint8Array);
}

/** The shape of the chain that a log holds. */
function chainOf(log: Log): number[] {
  return Array.from({ length: log.nodes.count }, (_, p) => log.nodes.parent(p));
}

describe("version 1", () => {
  test("becomes a chain in file order, under ids of eight hex digits", () => {
    const log = logOf(fileText(V1_HEADER, said("one"), said("two"), said("three")));
    expect(chainOf(log)).toEqual([-1, 0, 1]);
    expect(new Set(idsOf(log)).size).toBe(3);
    for (const id of idsOf(log)) expect(id).toMatch(/^[0-9a-f]{8}$/);
    expect([log.version, log.header.version, log.damage]).toEqual([1, 3, []]);
  });

  test("gives ids that depend on the line and its number only", () => {
    const open = (...lines: string[]) => idsOf(logOf(fileText(V1_HEADER, ...lines)));
    const ids = open(said("one"), said("two"), said("one"));
    expect(open(said("one"), said("two"), said("one"))).toEqual(ids);
    expect(open(said("one"), said("two"), said("one"), said("more")).slice(0, 3)).toEqual(ids);
    expect(open(said("other"), said("two"), said("one")).slice(1)).toEqual(ids.slice(1));
    expect(ids[0]).not.toBe(ids[2]);
    // First 8 hex digits of SHA-256 over line number and line, as a client may have them from yesterday.
    expect(ids).toEqual(["7987e66c", "5676bd4b", "098e2efd"]);
  });

  test("keeps the ids when it is published as version 3", async () => {
    const disk = diskWith(fileText(V1_HEADER, said("one"), "", said("two"), "not json", said("three")));
    const before = idsOf(jsonlOn(disk).open(FILE));
    await appended(disk);
    const after = jsonlOn(disk).open(FILE);
    expect(idsOf(after)).toEqual([...before, id(99)]);
    expect(after.version).toBe(3);
    expect(after.damage).toEqual([]);
  });

  test("an id that is there already is kept, and so is a parent that is one: only the header lost its version", () => {
    const entry = (id: string, parent: string) =>
      `{"id":"${id}","type":"message","parentId":${parent},"message":{"role":"user","content":"a"}}`;
    const lines = [entry("one", "null"), entry("two", '"four"'), entry("three", '"one"'), entry("four", "null")];
    const log = logOf(fileText(V1_HEADER, ...lines));
    expect(textsOf(log)).toEqual(lines);
    expect(chainOf(log)).toEqual([-1, 3, 0, -1]);
  });

  test("a compaction's index becomes the id of the entry of that line, the header being 0, but for blank and broken ones", () => {
    const content = fileText(V1_HEADER, "", said("one"), "{broken", said("two"), compacted(2), said("three"));
    const log = logOf(content);
    expect(textsOf(log)[2]).toContain(`"firstKeptEntryId":"${idsOf(log)[1]}"`);
    expect(textsOf(log)[2]).not.toContain("firstKeptEntryIndex");
    const contents = messagesAt(openOn(diskWith(content))).map((message) => (message as { content?: string }).content);
    expect(contents).toEqual([undefined, "two", "three"]);
  });

  test.each([[0], [-1], [9], [1.5], [null]])("an index that leads nowhere (%j) keeps more, not nothing", (index) => {
    const session = openOn(diskWith(fileText(V1_HEADER, said("one"), compacted(index), said("two"))));
    expect([messagesAt(session).length, session.context().misplacedBoundary]).toEqual([3, true]);
  });

  test("the header keeps its model and level", () => {
    const session = openOn(diskWith(fileText(V1_HEADER, said("one"))));
    expect([session.model(), session.thinkingLevel()]).toEqual([{ provider: "p", id: "m" }, "low"]);
    expect(decodeText(session.log.headerLine)).toBe(V1_HEADER.replace('"session"', '"session","version":3'));
  });

  test("a second header is no entry and not counted as one", () => {
    const log = logOf(fileText(V1_HEADER, said("one"), V1_HEADER, said("two")));
    expect(chainOf(log)).toEqual([-1, 0]);
    expect(kindsOf(log)).toEqual(["extra_header"]);
  });

  test.each(["1", '"1"', "null"])("may say so itself: %s", (version) => {
    const header = V1_HEADER.replace('"session"', `"session","version":${version}`);
    const log = logOf(fileText(header, said("one"), said("two")));
    expect([log.version, log.header.version, chainOf(log)]).toEqual([1, 3, [-1, 0]]);
    expect(decodeText(log.headerLine)).toBe(V1_HEADER.replace('"session"', '"session","version":3'));
  });
});

describe("version 2", () => {
  const V2_HEADER = headerText({ version: 2 });
  const hook = (n: number, more = "") =>
    `{"type":"message","id":"${id(n)}","parentId":${n ? `"${id(n - 1)}"` : null},"timestamp":"${TIME}","message":{"role":"hookMessage","customType":"t","content":"c"${more}}}`;

  test("keeps ids and parents; the role hookMessage is called custom", () => {
    const lines = [userText(id(0), null), hook(1, ',"x":1.0'), userText(id(5), id(0))];
    const log = logOf(fileText(V2_HEADER, ...lines));
    expect(idsOf(log)).toEqual([id(0), id(1), id(5)]);
    expect(chainOf(log)).toEqual([-1, 0, 0]);
    expect(log.nodes.role(1)).toBe("custom");
    expect(textsOf(log)).toEqual([lines[0], lines[1].replace('"hookMessage"', '"custom"'), lines[2]]);
    expect([log.version, log.header.version, log.damage]).toEqual([2, 3, []]);
    expect(decodeText(log.headerLine)).toBe(headerText());
  });

  test("other roles and other places of the word stay; version 1 knows the role too", () => {
    const line = userText(id(0), null, 'say \\"hookMessage\\"').replace('"user"', '"user","was":"hookMessage"');
    expect(textsOf(logOf(fileText(V2_HEADER, line)))).toEqual([line]);
    const old = `{"type":"message","message":{"role":"hookMessage","content":"c"}}`;
    expect(textsOf(logOf(fileText(V1_HEADER, old)))[0]).toContain('"role":"custom"');
  });

  test("an entry without id, and one whose id is taken, have the same ones before and after it is published", async () => {
    const disk = diskWith(fileText(V2_HEADER, "", userText(id(0), null), said("nameless"), hook(0)));
    const log = jsonlOn(disk).open(FILE);
    const [, made] = idsOf(log);
    expect(idsOf(log)).toEqual([id(0), made, `${id(0)}~2`]);
    expect(JSON.parse(textsOf(log)[1])).toMatchObject({ id: made });
    expect(JSON.parse(textsOf(log)[2])).toMatchObject({ id: `${id(0)}~2`, message: { role: "custom" } });
    expect(kindsOf(log)).toContain("missing_id");
    await appended(disk);
    expect(idsOf(jsonlOn(disk).open(FILE))).toEqual([id(0), made, `${id(0)}~2`, id(99)]);
  });
});

describe("publishing as version 3", () => {
  test("happens at the first append and keeps the original, with its mode", async () => {
    const content = fileText(V1_HEADER, said("one"), said("two"));
    const disk = diskWith(content);
    disk.put(FILE, toBytes(content), 0o640);
    const before = disk.info(FILE);
    const session = openOn(disk);
    expect(messagesAt(session)).toHaveLength(2);
    expect([disk.info(FILE), disk.paths()]).toEqual([before, [FILE]]);
    session.close();
    const lines = await appended(disk);
    expect(disk.paths()).toEqual([FILE, `${FILE}.v1.bak`]);
    expect(decodeText(disk.content(`${FILE}.v1.bak`) as Uint8Array)).toBe(content);
    // The change time moves with the names of a file.
    expect(disk.info(`${FILE}.v1.bak`)).toEqual({ ...before, changed: expect.any(Number) });
    expect(disk.info(FILE).mode).toBe(0o640);
    expect(lines).toHaveLength(4);
    expect(lines.map((line) => Object.keys(JSON.parse(line))[0])).toEqual(["type", "type", "type", "type"]);
    expect(JSON.parse(lines[3])).toMatchObject({ id: id(99), parentId: (JSON.parse(lines[2]) as { id: string }).id });
  });

  test("does not take the place of a backup that is there, and is not done for a read-only session", async () => {
    const disk = diskWith(fileText(V1_HEADER, said("one")));
    const log = jsonlOn(disk, { readOnly: true }).open(FILE);
    expect(() => log.append([toBytes(userText(id(1), null))])).toThrow(expect.objectContaining({ name: "read_only" }));
    expect(disk.paths()).toEqual([FILE]);
    disk.put(`${FILE}.v1.bak`, toBytes("mine"));
    await appended(disk);
    expect(decodeText(disk.content(`${FILE}.v1.bak`) as Uint8Array)).toBe("mine");
    expect(decodeText(disk.content(`${FILE}.v1.bak.2`) as Uint8Array)).toBe(fileText(V1_HEADER, said("one")));
  });

  test("is done for a header that names a leaf, which is the leaf until then", async () => {
    const header = headerText({ leafId: id(0), more: 1.5 });
    const content = fileText(header, userText(id(0), null), userText(id(1), id(0)));
    const disk = diskWith(content);
    const session = openOn(disk);
    expect(session.leafId).toBe(id(0));
    session.close();
    const lines = await appended(disk);
    expect(lines).toEqual([
      headerText({ more: 1.5 }),
      userText(id(0), null),
      userText(id(1), id(0)),
      expect.stringContaining(`"parentId":"${id(0)}"`),
    ]);
    expect(decodeText(disk.content(`${FILE}.v3.bak`) as Uint8Array)).toBe(content);
    expect(openOn(disk).leafId).toBe(id(99));
  });
});

describe("entries of version 3 without an id", () => {
  const hello = '{"type":"message","timestamp":"2026-02-03T22:52:06.410Z","message":{"role":"user","content":"Hello"}}';

  test("get different ids when they are equal, the same ones at every opening", () => {
    const content = fileText(headerText(), hello, hello, userText("1d15f2e5", null), hello);
    const ids = idsOf(logOf(content));
    // As the Rust implementation gives them.
    expect([ids[0], kindsOf(logOf(content))[0]]).toEqual(["1d15f2e4", "missing_id"]);
    expect(new Set(ids).size).toBe(4);
    expect(idsOf(logOf(content))).toEqual(ids);
  });
});
