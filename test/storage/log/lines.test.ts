/** Files as they are found: every odd or damaged line costs at most itself, is reported, and is left as it is. */

import { describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { scanFile } from "../../../src/storage/catalog/summary.ts";
import { findStrangeFormat } from "../../../src/storage/fs/formats.ts";
import { readHeader } from "../../../src/storage/fs/header.ts";
import { CHUNK, scanLines } from "../../../src/storage/log/lines.ts";
import { appendMessages as append, messageDraft } from "../../support/change-faults.ts";
import { verify } from "../../support/corruption.ts";
import { chain, entryText, fileText, headerText, id, linesOf, SESSION, TIME, userText } from "../../support/lines.ts";
import { forSeeds, isEvery, range, share } from "../../support/random.ts";
import {
  diskWith,
  FILE,
  idsOf,
  jsonlOn,
  kindsOf,
  logOf,
  messagesAt,
  openOn,
  QUARANTINE,
  textsOf,
} from "../../support/sessions.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";

/** Opens a file and reads all of it, which must leave it as it was. */
function read(content: string | Uint8Array): Log {
  const disk = diskWith(content);
  const before = disk.info(FILE);
  const bytes = disk.content(FILE);
  const log = jsonlOn(disk).open(FILE);
  textsOf(log);
  openOn(disk).close();
  expect(disk.info(FILE)).toEqual(before);
  expect(disk.content(FILE)).toBe(bytes);
  expect(disk.paths()).toEqual([FILE]);
  return log;
}

const HEADER = headerText();
const file = (...lines: string[]) => fileText(HEADER, ...lines);

describe("line ends", () => {
  test("a byte order mark is no part of the header", () => {
    const log = read(`\ufeff${file(...chain(2))}`);
    expect([idsOf(log), log.damage]).toEqual([[id(0), id(1)], []]);
    expect(decodeText(log.headerLine)).toBe(HEADER);
  });

  test("carriage returns are no part of the lines, and what is appended has none", async () => {
    const content = file(...chain(3)).replaceAll("\n", "\r\n");
    expect([textsOf(read(content)), read(content).damage]).toEqual([chain(3), []]);
    const disk = diskWith(content);
    await append(openOn(disk), id(9));
    expect(decodeText(disk.content(FILE) as Uint8Array).startsWith(content)).toBe(true);
    expect(idsOf(read(disk.content(FILE) as Uint8Array))).toEqual([id(0), id(1), id(2), id(9)]);
    expect(linesOf(disk.content(FILE) as Uint8Array).at(-1)).not.toContain("\r");
  });

  test("a header alone, with or without its line feed, is a session without entries", async () => {
    for (const content of [HEADER, `${HEADER}\n`, `\ufeff${HEADER}\r\n`, `\n \n${HEADER}\n\n`]) {
      expect([read(content).nodes.count, read(content).damage], JSON.stringify(content)).toEqual([0, []]);
      const disk = diskWith(content);
      await append(openOn(disk), id(9));
      expect(idsOf(read(disk.content(FILE) as Uint8Array)), JSON.stringify(content)).toEqual([id(9)]);
    }
  });

  test("blank lines are nothing, anywhere", () => {
    const log = read(`\n  \n${HEADER}\n\r\n \t\n${chain(2).join("\n\n\n")}\n\n`);
    expect([textsOf(log), log.damage]).toEqual([chain(2), []]);
  });

  test("only line feeds end lines", () => {
    const texts = ["\u2028", "\u2029", "\u0085", "\\u000a", "\u007f"].map((odd, n) =>
      userText(id(n), null, "x").replace('"x"', `"a${odd}b"`),
    );
    expect(textsOf(read(file(...texts)))).toEqual(texts);
  });

  acrossTiers(test, [1, 2])(
    "lines of any length are found, wherever the pieces in which the file is read end (%i)",
    (count) => {
      forSeeds(count, (random) => {
        const lines: string[] = [];
        let size = HEADER.length + 1;
        const end = random.pick(["\n", "\r\n"]);
        while (size < CHUNK * 2.2) {
          const n = lines.length;
          const toBoundary = CHUNK - (size % CHUNK);
          const base = userText(id(n), n === 0 ? null : id(n - 1), "").length + end.length;
          const wanted = random.pick([200, 5000, ...[-1, 0, 1, 2, CHUNK].map((more) => toBoundary + more)]);
          let line = userText(id(n), n === 0 ? null : id(n - 1), "x".repeat(Math.max(0, wanted - base)));
          // Some that the quick reading leaves alone.
          if (random.chance(0.2)) line = line.replace('"type":"message"', '"type":"odd_type"');
          lines.push(line);
          size += line.length + end.length;
        }
        const log = read([HEADER, ...lines, ""].join(end));
        expect(idsOf(log)).toEqual(lines.map((_, n) => id(n)));
        expect(textsOf(log).map((text) => text.length)).toEqual(lines.map((line) => line.length));
        expect(textsOf(log).every((text, n) => text === lines[n])).toBe(true);
        expect(log.damage).toEqual([]);
      });
    },
  );

  test("a file that grows while it is read is read to its end", () => {
    const disk = diskWith("short");
    const grown = `${"x".repeat(3 << 20)}\n${"y".repeat(100)}\n`;
    const fd = disk.openRead(FILE);
    const found: string[] = [];
    const size = disk.infoOf(fd);
    disk.infoOf = () => size;
    disk.put(FILE, toBytes(grown));
    const visitor = {
      line: (number: number, _start: number, b: Uint8Array, at: number, end: number) =>
        found.push(`${number}: ${decodeText(b.subarray(at, end))}`),
      long: (number: number, start: number, length: number) => found.push(`${number}: ${start} + ${length}`),
    };
    const scanned = scanLines(disk, disk.openRead(FILE), 0, 4, visitor);
    expect(scanned).toEqual({ size: grown.length, tail: grown.length, lines: 2 });
    expect(found).toEqual([`1: 0 + ${3 << 20}`, `2: ${"y".repeat(100)}`]);
  });

  test("a line of 5 MiB is read, of a known type or not", SWEEP, () => {
    // Five of the pieces of reading a file, and more than the 4 MiB above which a line is searched in another way.
    for (const type of ["message", "unheard_of"]) {
      const large = userText(id(1), id(0), "x".repeat(5 << 20)).replace("message", type);
      const log = read(file(userText(id(0), null), large, userText(id(2), id(1))));
      expect([idsOf(log), log.damage]).toEqual([[id(0), id(1), id(2)], []]);
      expect(log.read(1).length).toBe(large.length);
    }
  });
});

describe("a torn tail", () => {
  const whole = chain(3);
  const last = userText(id(3), id(2), "the last — with \\n and 漢");

  test("cut at every byte costs the last entry and nothing else", () => {
    const bytes = toBytes(last);
    for (let cut = 1; cut < bytes.length; cut++) {
      const log = read(Buffer.concat([toBytes(file(...whole)), bytes.subarray(0, cut)]));
      expect(textsOf(log), `cut at ${cut}`).toEqual(whole);
      expect(log.damage).toEqual([
        expect.objectContaining({ kind: "torn_tail", line: 5, byteOffset: file(...whole).length, length: cut }),
      ]);
    }
    expect(textsOf(read(file(...whole) + last))).toEqual([...whole, last]);
  });

  test("is kept aside and cut off by the first append, three times over", async () => {
    let content: string | Uint8Array = file(...whole);
    const acknowledged = idsOf(read(content));
    for (let round = 0; round < 3; round++) {
      const torn = userText(id(50 + round), id(2)).slice(0, 40 + round * 20);
      const disk = diskWith(Buffer.concat([toBytes(Buffer.from(content as Uint8Array).toString()), toBytes(torn)]));
      const session = openOn(disk, FILE, round);
      expect(session.leafId).toBe(acknowledged.at(-1));
      await append(session, id(10 + round));
      acknowledged.push(id(10 + round));
      content = disk.content(FILE) as Uint8Array;
      expect([idsOf(read(content)), read(content).damage]).toEqual([acknowledged, []]);
      const kept = disk.paths().filter((path) => path.startsWith(QUARANTINE));
      expect(kept.map((path) => decodeText(disk.content(path) as Uint8Array))).toEqual([torn]);
      expect(session.diagnostics).toEqual([expect.objectContaining({ kind: "torn_tail", keptAt: kept[0] })]);
    }
  });

  test("of zeros, as a power cut leaves it, is one too", async () => {
    const disk = diskWith(Buffer.concat([toBytes(file(...whole)), Buffer.alloc(5000)]));
    const session = openOn(disk);
    expect([idsOf(session.log), kindsOf(session.log)]).toEqual([[id(0), id(1), id(2)], ["torn_tail"]]);
    await append(session, id(10));
    expect(idsOf(read(disk.content(FILE) as Uint8Array))).toEqual([id(0), id(1), id(2), id(10)]);
  });

  test("that another entry was glued to costs that entry nothing", () => {
    for (const cut of share(range(1, last.length), 70)) {
      const log = read(file(...whole, last.slice(0, cut) + userText(id(4), id(2)), userText(id(5), id(4))));
      expect(idsOf(log).slice(-2), `cut at ${cut}`).toEqual([id(4), id(5)]);
      expect(textsOf(log).slice(-2)).toEqual([userText(id(4), id(2)), userText(id(5), id(4))]);
      expect(log.damage.length).toBeGreaterThan(0);
    }
  });
});

describe("lines that are no entries", () => {
  test.each([
    ...["1", '"x"', "[]", "null", "true", "{}", "-0.5"],
    ...["hello", "{broken", "\0\0\0\0", '{"type":5}', '{"id":"x"}'],
  ])("%j is read past, reported, and stays; at the end it leaves the leaf where it was", async (stray) => {
    const log = read(file(...chain(2), stray, ...chain(1, 2)));
    expect([textsOf(log), kindsOf(log)]).toEqual([chain(3), ["bad_line"]]);
    const place = { line: 4, byteOffset: file(...chain(2)).length, length: stray.length, salvaged: false };
    expect(log.damage[0]).toMatchObject(place);
    const content = file(...chain(4), stray);
    expect(kindsOf(read(content))).toEqual(["bad_line"]);
    const disk = diskWith(content);
    const session = openOn(disk);
    expect([session.leafId, messagesAt(session).length]).toEqual([id(3), 4]);
    await append(session, id(9));
    expect(decodeText(disk.content(FILE) as Uint8Array).startsWith(content)).toBe(true);
  });

  test("a second header is one", () => {
    const log = read(file(...chain(2), headerText({ id: "another" }), ...chain(1, 2)));
    expect([textsOf(log), kindsOf(log), log.header.id]).toEqual([chain(3), ["extra_header"], SESSION]);
  });

  test("parts of a damaged entry are not taken for entries", () => {
    const blocks = [
      { type: "text", text: "a" },
      { type: "toolCall", id: "call", name: "bash", arguments: { type: "custom", id: "x" } },
    ];
    const whole = entryText("message", id(2), id(1), { message: { role: "assistant", content: blocks } });
    for (const damaged of [whole.slice(0, -3), whole.replace('"role"', '"ro\u0001le"'), whole.slice(12)]) {
      const log = read(file(...chain(2), damaged.replace("\\u0001", "\u0001"), userText(id(3), id(1))));
      const others = idsOf(log).filter((entryId) => entryId !== id(2));
      expect(others, damaged).toEqual([id(0), id(1), id(3)]);
      expect(log.damage.length).toBeGreaterThan(0);
    }
  });

  test("bytes that are not UTF-8 are one line's damage", () => {
    const bad = Buffer.from(userText(id(2), id(1), "xyz"));
    bad[bad.indexOf("xyz") + 1] = 0xff;
    const log = read(Buffer.concat([toBytes(file(...chain(2))), bad, toBytes(`\n${fileText(...chain(1, 3))}`)]));
    expect(textsOf(log).filter((text) => !JSON.parse(text).damaged)).toEqual([...chain(2), userText(id(3), id(2))]);
    expect(log.damage).toHaveLength(1);
  });

  test("a run of zeros before or behind an entry costs the zeros", () => {
    const zeros = "\0".repeat(100);
    for (const line of [zeros + userText(id(1), id(0)), userText(id(1), id(0)) + zeros]) {
      const log = read(file(userText(id(0), null), line, userText(id(2), id(1))));
      expect(textsOf(log)).toEqual(chain(3));
      expect(kindsOf(log)).toEqual(["bad_line"]);
      expect(log.damage[0].length).toBe(100);
    }
  });
});

describe("one flipped bit", () => {
  /** In turn the one that changes the case of letters, the highest, and another; all of them in soak. */
  const bitsAt = (at: number) => (isEvery() ? range(0, 8) : [[5, 7, (at / 3) & 7][at % 3]]);

  const lines = chain(6);
  const before = file(...lines.slice(0, 3)).length;

  function flipEach(places: readonly number[], check: (log: Log, where: string) => void): void {
    for (const at of places)
      for (const bit of bitsAt(at)) {
        const flipped = Uint8Array.from(toBytes(file(...lines)));
        flipped[at] ^= 1 << bit;
        check(logOf(flipped), `byte ${at}, bit ${bit}`);
      }
  }

  test("in an entry affects that entry at most", () => {
    const others = lines.filter((_, n) => n !== 3);
    flipEach(range(before, before + lines[3].length), (log, where) => {
      const texts = textsOf(log);
      const missing = others.filter((line) => !texts.includes(line));
      expect(missing, where).toEqual([]);
      for (const text of texts) JSON.parse(text);
    });
  });

  acrossTiers(test, [7, 1])("in the header leaves every entry reachable (one byte of %i)", (step) => {
    const places = range(0, HEADER.length).filter((at) => at % step === 0);
    // A header that lost its type is an entry of an unknown one.
    flipEach(places, (log, where) => expect([6, 7], where).toContain(log.nodes.count));
  });
});

describe("headers", () => {
  test("that are damaged are replaced in memory, for reading only", () => {
    const log = read(fileText(`${HEADER.slice(0, 30)}\0${HEADER.slice(31)}`, ...chain(3)));
    expect([textsOf(log), kindsOf(log)]).toEqual([chain(3), expect.arrayContaining(["bad_header"])]);
    expect(log.readOnly).toMatchObject({ name: "read_only" });
    expect(log.header).toMatchObject({ type: "session", id: expect.stringMatching(/./) });
    expect(() => log.append([toBytes(userText(id(9), id(2)))])).toThrow(expect.objectContaining({ name: "read_only" }));
  });

  const DAMAGED = `{"type":"sess\0${HEADER.slice(15)}`;
  const NAMED = `2025-11-14T08-17-33-904Z_${id(7)}.jsonl`;
  test.each<[string, string, string, Record<string, unknown>]>([
    ["the line", DAMAGED, "session.jsonl", { id: SESSION, timestamp: TIME, cwd: "/home/me/project" }],
    [
      "its parent, too",
      DAMAGED.replace("}", ',"parentSession":"/old.jsonl"}'),
      "session.jsonl",
      { parentSession: "/old.jsonl", cwd: "/home/me/project" },
    ],
    ["name and folder", "{", NAMED, { id: id(7), timestamp: "2025-11-14T08:17:33.904Z", cwd: "/home/me/project" }],
    ["no entry's line", chain(1)[0], NAMED, { id: id(7), timestamp: "2025-11-14T08:17:33.904Z" }],
  ])("that are damaged keep the facts of %s when they are repaired", (_, line, name, wanted) => {
    const folder = "/sessions/--home-me-project--";
    const disk = diskWith(fileText(line, ...chain(2)), `${folder}/${name}`);
    disk.put(`${folder}/other.jsonl`, toBytes(fileText(headerText({ id: "other" }))));
    const log = jsonlOn(disk).open(`${folder}/${name}`);
    log.repair();
    log.close();
    expect(jsonlOn(disk).open(`${folder}/${name}`).header).toMatchObject(wanted);
  });

  test("that are missing are, too, and the first entry is not lost", () => {
    const log = read(fileText(...chain(3)));
    expect([textsOf(log), kindsOf(log)]).toEqual([chain(3), ["bad_header"]]);
  });

  test.each([99, 4, "4", -1, 0, 2.5, "x", {}, true])(
    "of version %j, which is newer or none, are never written",
    (version) => {
      const log = read(fileText(headerText({ version }), ...chain(3)));
      expect(textsOf(log)).toEqual(chain(3));
      expect(log.damage).toHaveLength(1);
      expect(log.readOnly).not.toBeNull();
      if (Number(version) < 4 || !Number(version)) return;
      expect([log.version, kindsOf(log)]).toEqual([Number(version), ["newer_version"]]);
      const refused = expect.objectContaining({ name: "unsupported_version" });
      expect(log.readOnly).toEqual(refused);
      expect(() => log.append([toBytes(userText(id(9), id(2)))])).toThrow(refused);
    },
  );

  test("may write the version as a text", async () => {
    const disk = diskWith(fileText(headerText({ version: "3" }), ...chain(3)));
    const session = openOn(disk);
    expect([session.diagnostics, session.log.version]).toEqual([[], 3]);
    await append(session, id(9));
    expect(linesOf(disk.content(FILE) as Uint8Array)[0]).toBe(headerText({ version: "3" }));
    expect(disk.paths()).toEqual([FILE]);
  });
});

describe("ids", () => {
  const odd = (entryId: string, parentId: string | null) =>
    `{"type":"message","id":${entryId},"parentId":${parentId},"message":{"role":"user","content":"x"}}`;

  test.each([
    ["a number", "7"],
    ["__proto__", '"__proto__"'],
    ["constructor", '"constructor"'],
    ["10 KB", JSON.stringify("i".repeat(10_000))],
    ["escapes", '"\\u0061\\n"'],
    ["not hex", '"e5f6g7h8"'],
    ["upper case", '"A0000001"'],
    ["with a tilde", '"a~2"'],
  ])("that are %s are used as they are", (_, written) => {
    const log = read(file(odd(written, null), odd('"child"', written), userText(id(3), "child")));
    expect([log.nodes.parent(1), log.nodes.parent(2), log.damage]).toEqual([0, 1, []]);
    expect(log.nodes.id(0)).toBe(String(JSON.parse(written)));
    expect(log.nodes.position(log.nodes.id(0))).toBe(0);
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });

  test.each([
    ["missing", '{"type":"message","message":{"role":"user","content":"x"}}'],
    ["empty", odd('""', null)],
    ["null", odd("null", null)],
    ["an object", odd("{}", null)],
  ])("that are %s are made, the same at every opening, and reported", (_, line) => {
    const content = file(line, ...chain(1));
    const log = read(content);
    const [made] = idsOf(log);
    expect(made).toMatch(/^[0-9a-f]{8}$/);
    expect(JSON.parse(decodeText(log.read(0)))).toMatchObject({ id: made });
    expect(kindsOf(log)).toEqual(["missing_id"]);
    expect(idsOf(read(content))).toEqual(idsOf(log));
  });

  test("that are taken: the same bytes are no second entry, others get a name of their own", () => {
    const log = read(file(...chain(2), chain(2)[1], userText(id(1), id(0), "other"), userText(id(2), id(1))));
    expect(idsOf(log)).toEqual([id(0), id(1), `${id(1)}~2`, id(2)]);
    expect(kindsOf(log)).toEqual(["duplicate_id", "duplicate_id"]);
    expect(log.nodes.parent(3)).toBe(1);
    expect(JSON.parse(decodeText(log.read(2)))).toMatchObject({ id: `${id(1)}~2`, message: { content: "other" } });
  });

  test("that were doubled while a parent was waited for lead to the right parents", () => {
    const waiting = userText(id(1), id(9));
    const log = read(file(waiting, waiting, userText(id(2), id(1)), userText(id(9), null)));
    expect(idsOf(log)).toEqual([id(1), id(2), id(9)]);
    expect([0, 1, 2].map((position) => log.nodes.parent(position))).toEqual([2, 0, -1]);
  });
});

describe("parents", () => {
  test("in a line that is lost are bridged where one chain goes on", () => {
    const session = openOn(diskWith(file(...chain(2), "}{", ...chain(2, 3))));
    expect(messagesAt(session)).toHaveLength(4);
    expect(session.diagnostics.map(({ kind }) => kind).sort()).toEqual(["bad_line", "missing_parent"]);
  });

  test("that no line is missing for end the path, and it is said", () => {
    const session = openOn(diskWith(file(...chain(2), ...chain(2, 3))));
    expect(messagesAt(session)).toHaveLength(2);
    expect(session.diagnostics).toEqual([expect.objectContaining({ kind: "missing_parent", entryId: id(3) })]);
  });

  test("are not guessed where there are branches", () => {
    const branched = [...chain(3), userText(id(5), id(0)), "}{", userText(id(8), id(7)), userText(id(9), id(8))];
    const session = openOn(diskWith(file(...branched)));
    expect(messagesAt(session)).toHaveLength(2);
  });

  test("of a line whose body is damaged are still known", () => {
    const bad = userText(id(2), id(1)).replace('"say', '"\u0001say');
    const session = openOn(diskWith(file(...chain(2), bad, ...chain(2, 3))));
    expect([...session.tree.path()]).toEqual([0, 1, 2, 3, 4]);
    expect(session.diagnostics).toEqual([expect.objectContaining({ kind: "bad_body", entryId: id(2) })]);
    expect(() => messagesAt(session)).not.toThrow();
    expect(session.messageCount()).toBe(messagesAt(session).length);
  });

  test("later in the file are as good as earlier", () => {
    const session = openOn(diskWith(file(...chain(4).reverse())));
    expect(session.diagnostics).toEqual([]);
    expect(messagesAt(session, 0)).toHaveLength(4);
  });
});

describe("batches", () => {
  const batched = (n: number, index: unknown, count: unknown, more: Record<string, unknown> = {}) =>
    entryText("message", id(n), id(n - 1), {
      _batch: { session: SESSION, index, count, ...more },
      message: { role: "user", content: `say ${id(n)}` },
    });

  test("that are torn at the end never were, and the next append takes their place", async () => {
    const content = file(...chain(2), batched(2, 0, 3), batched(3, 1, 3)) + batched(4, 2, 3).slice(0, 50);
    const log = read(content);
    expect(idsOf(log)).toEqual([id(0), id(1)]);
    expect(kindsOf(log)).toContain("incomplete_batch");
    const disk = diskWith(content);
    const session = openOn(disk);
    await append(session, id(2));
    const after = disk.content(FILE) as Uint8Array;
    expect([idsOf(read(after)), read(after).damage]).toEqual([[id(0), id(1), id(2)], []]);
    const kept = disk.paths().filter((path) => path.startsWith(QUARANTINE));
    expect(kept.map((path) => decodeText(disk.content(path) as Uint8Array)).join("")).toBe(
      content.slice(file(...chain(2)).length),
    );
    expect(decodeText(session.line(2))).not.toContain('"_batch"');
  });

  test("of another session, as forks have them, are entries like others", () => {
    const log = read(file(...chain(2), batched(2, 0, 3, { session: "another" })));
    expect([log.nodes.count, log.damage]).toEqual([3, []]);
  });

  test.each([
    ["a negative index", -5, 3],
    ["a broken index", 0.5, 3],
    ["an index that is no number", "0", 3],
    ["a huge index", 1e9, 2e9],
  ])("with %s cost no entry that is not theirs", (_, index, count) => {
    const log = read(file(...chain(2), batched(2, index, count)));
    expect(idsOf(log).slice(0, 2)).toEqual([id(0), id(1)]);
    expect(log.nodes.count).toBeLessThanOrEqual(3);
  });

  test("whose beginning is lost cost no entry that is not theirs", () => {
    const log = read(file(...chain(3), "}{", batched(4, 1, 3).replace(id(3), id(2))));
    expect(idsOf(log).slice(0, 3)).toEqual([id(0), id(1), id(2)]);
  });
});

describe("a member that stands twice in an entry", () => {
  const twice = (more: string): string => `${userText(id(1), id(0)).slice(0, -1)},${more}}`;
  const MANY = chain(100, 3);

  test.each([
    ["id", twice(`"id":"${id(900)}"`), { id: id(900) }],
    ["parentId", twice('"parentId":null'), { parentId: null }],
    ["type", twice('"type":"custom"'), { type: "custom" }],
    ["role", userText(id(1), id(0)).replace("}}", ',"role":"assistant"}}'), { role: "assistant" }],
    ["message", twice('"message":{"role":"assistant","content":[]}'), { role: "assistant" }],
  ])("counts where it stands last, as for every parser: %s", (_name, line, expected) => {
    const { type, id: entryId, parentId, message } = JSON.parse(line);
    expect({ id: entryId, parentId, type, role: message.role }).toMatchObject(expected);
    for (const after of [[], MANY]) {
      const session = openOn(diskWith(file(...chain(1), line, userText(id(2), id(0)), ...after)));
      textsOf(session.log);
      // In the middle of a long file it is met when the entry is read.
      session.refresh();
      const { nodes } = session.log;
      const parent = session.idOrNull(nodes.parent(1));
      expect([nodes.position(entryId), nodes.type(1), parent]).toEqual([1, type, parentId]);
      if (type === "message") expect(nodes.role(1)).toBe(message.role);
      expect([textsOf(session.log)[1], session.diagnostics]).toEqual([line, []]);
    }
  });
});

test("a session that is opened for reading only is not repaired, whatever is damaged", () => {
  for (const content of [fileText("{broken", ...chain(2)), fileText(headerText(), ...chain(2), "}{")]) {
    const disk = diskWith(content);
    const log = jsonlOn(disk, { readOnly: true }).open(FILE);
    expect(() => log.repair()).toThrow(expect.objectContaining({ name: "read_only" }));
    expect(disk.paths()).toEqual([FILE]);
    expect(decodeText(disk.content(FILE) as Uint8Array)).toBe(content);
  }
});

test("what only keeps the leaf is no parent to name", async () => {
  const disk = diskWith(file(...chain(3)));
  const session = openOn(disk);
  session.moveLeaf(0);
  await session.leave();
  const again = openOn(disk, FILE, 3);
  const { nodes } = again.log;
  expect(nodes.isMarker(nodes.count - 1)).toBe(true);
  const draft = { ...messageDraft("new"), parentId: nodes.id(nodes.count - 1) };
  expect(() => again.append([draft])).toThrow(expect.objectContaining({ name: "entry_not_found" }));
  expect([again.leafId, nodes.count]).toEqual([id(0), 4]);
});

describe("the first valid header in a file counts", () => {
  const header = headerText({ parentSession: "/elsewhere/parent.jsonl" });
  const torn = chain(1)[0].slice(0, 40);
  const before: readonly (readonly [what: string, text: string, entries: number, kinds: readonly string[]])[] = [
    ["a record of another kind", '{"type":"title"}\n', 3, ["bad_line"]],
    ["a line of a log", "12:00 begun\n\n", 3, ["bad_line"]],
    ["a header without an id", '{"type":"session","version":3}\n', 3, ["bad_line"]],
    ["zeros in the same line", "\0".repeat(3000), 3, ["bad_line"]],
    ["a torn entry in the same line", torn, 3, ["bad_line"]],
    ["an entry", `${chain(1)[0]}\n`, 4, ["bad_line"]],
    ["three lines", '{"type":"title"}\n[]\nx\n', 3, ["bad_line", "bad_line", "bad_line"]],
    ["many lines", `${"a line of a log ".repeat(100)}\n`.repeat(200), 3, Array(200).fill("bad_line")],
    ["a long line", `${"a".repeat(1 << 19)}\n`, 3, ["bad_line"]],
  ];

  test.each(before)("though %s stands before it", (_what, text, entries, kinds) => {
    const disk = diskWith(text + fileText(header, ...chain(3, entries - 3)));
    const log = jsonlOn(disk).open(FILE);
    const facts = { id: SESSION, cwd: "/home/me/project", parentSession: "/elsewhere/parent.jsonl" };
    expect(log.header).toMatchObject(facts);
    expect([idsOf(log).length, kindsOf(log), log.readOnly]).toEqual([entries, kinds, null]);
    expect(readHeader(disk, FILE)).toEqual(JSON.parse(header));
    expect(scanFile(disk, FILE)?.now).toMatchObject({
      ...facts,
      timestamp: JSON.parse(header).timestamp,
      messages: entries,
    });
    log.repair();
    const repaired = decodeText(disk.content(FILE) as Uint8Array);
    expect(repaired).toBe(fileText(header, ...chain(entries)));
    expect(kindsOf(jsonlOn(disk).open(FILE))).toEqual([]);
  });

  test.each(["sessiom", "sX\u00d9\u00facession", ""])("and one whose type reads %j hides no entry", (type) => {
    const damaged = headerText().replace('"type":"session"', `"type":${JSON.stringify(type)}`);
    expect(textsOf(logOf(fileText(damaged, ...chain(3)))).slice(-3)).toEqual(chain(3));
  });

  test("and one that is lost is not made up of what this process is", () => {
    const log = logOf(fileText("{broken", ...chain(2)));
    expect([log.header.cwd, log.header.parentSession]).toEqual(["", undefined]);
  });
});

test("a result whose parent is its call begins a path, and is no damage", async () => {
  const result = (id: string, toolCallId: string) =>
    entryText("message", id, "call-1", {
      message: { role: "toolResult", toolCallId, toolName: "ls", content: [], isError: false },
    });
  const lines = [userText(id(0), null), result(id(1), "call-1"), userText(id(2), id(1))];
  const session = openOn(diskWith(fileText(headerText(), ...lines)));
  const { damage, invariants, ok } = verify(session);
  expect([damage, ok, invariants.parentsKnown]).toMatchObject([
    [{ kind: "parent_is_call", entryId: id(1) }],
    true,
    true,
  ]);
  expect(damage[0].reason).toContain("call-1");
  expect(session.context(session.log.nodes.position(id(2))).items).toHaveLength(2);
  const other = openOn(diskWith(fileText(headerText(), lines[0], result(id(1), "call-2"))));
  expect(verify(other)).toMatchObject({ ok: false, damage: [{ kind: "missing_parent" }] });
});

describe("the header of a file", () => {
  test("of a newer version is named by its own line", () => {
    const content = fileText("a line of a log", "another", headerText({ version: 9 }));
    const [newer] = read(content).damage;
    expect(newer).toMatchObject({ kind: "newer_version", line: 3, byteOffset: content.indexOf("{") });
  });

  test("is not looked for in a database, whatever texts it has", () => {
    const disk = diskWith(`SQLite format 3\0\x10\n${fileText(headerText(), ...chain(2), headerText())}`);
    const isNone = expect.objectContaining({ name: "not_a_session" });
    expect(() => jsonlOn(disk).open(FILE)).toThrow(isNone);
    expect(scanFile(disk, FILE)).toBeNull();
    expect(readHeader(disk, FILE)).toBeUndefined();
    expect(findStrangeFormat(disk, FILE)?.name).toBe("sqlite");
  });
});
