/** The quick reading of a line's head never says anything else than the thorough one. */

import { describe, expect, test } from "vitest";
import { makeDraft, makeNewLine, makeNewPlace, makeTextDraft, makeValueDraft } from "../../../src/core/format/entry.ts";
import { HEAD_BYTES, HeadReader } from "../../../src/core/format/node-reader.ts";
import { type FastPath, getFastPath } from "../../../src/core/json/fast-path.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import { type Head, KNOWN_TYPES, Nodes, unpackId } from "../../../src/core/tree/nodes.ts";
import type { Frame } from "../../../src/storage/v2/frame.ts";
import { readEntry } from "../../../src/storage/v2/frame-entries.ts";
import { entryText, id, TIME } from "../../support/lines.ts";
import { forSeeds, type Random } from "../../support/random.ts";

function quick(line: string): Head | null {
  const heads = new HeadReader(new Nodes());
  const bytes = toBytes(line);
  return heads.readFast(bytes, 0, Math.min(bytes.length, HEAD_BYTES)) ? pick(heads) : null;
}

function thorough(line: string): Head | string {
  const heads = new HeadReader(new Nodes());
  const bytes = toBytes(line);
  return heads.readAny(bytes, 0, bytes.length, () => "made") ?? pick(heads);
}

function pick({ packedId, id, packedParent, parentId, type, role, flags }: Head): Head {
  return { packedId, id, packedParent, parentId, type, role, flags };
}

/** Returns the heads of lines that one reader reads ahead, null for those that are not as usual. */
function readAhead(lines: readonly string[], ...others: HeadReader[]): (Head | null)[] {
  const heads = new HeadReader(new Nodes());
  const bytes = toBytes(`${lines.join("\n")}\n${" ".repeat(20_000)}`);
  for (const reader of [heads, ...others]) reader.readAhead(bytes, bytes.length);
  let start = 0;
  return lines.map((line) => {
    const end = start + toBytes(line).length;
    const isRead = heads.readFast(bytes, start, end);
    for (const other of others) other.readFast(bytes, start, end);
    start = end + 1;
    return isRead ? pick(heads) : null;
  });
}

const BATCH = { session: "s", index: 0, count: 1 };

describe("lines that are read ahead", () => {
  const message = (n: number, role = "user", more = {}): string =>
    entryText("message", id(n), n === 0 ? null : id(n - 1), { message: { role, content: "a", timestamp: 5, ...more } });
  const many = Array.from({ length: 4200 }, (_, n) => message(n, ["user", "assistant", "toolResult", "system"][n % 4]));

  test("have the heads that they have one by one, however many they are and whoever reads beside", () => {
    expect(readAhead(many)).toEqual(many.map(thorough));
    expect(readAhead(many.slice(0, 50), new HeadReader(new Nodes()))).toEqual(many.slice(0, 50).map(thorough));
  });

  test("are messages of three roles", () => {
    const { bytes, heads, lines } = getFastPath() as FastPath;
    const text = toBytes(`${many.slice(0, 4).join("\n")}\n`);
    bytes.set(text);
    expect(heads(text.length)).toBe(4);
    expect([3, 7, 11, 15].map((place) => lines[place])).toEqual([257, 2, 3, 0]);
  });

  test("are whole lines", () => {
    const heads = new HeadReader(new Nodes());
    const bytes = toBytes(`${many.slice(0, 100).join("\n")}\n`);
    const [first, second] = many.map((line) => line.length);
    heads.readAhead(bytes, bytes.length);
    expect(heads.readFast(bytes, 0, first)).toBe(true);
    expect(heads.readFast(bytes, first + 2, first + 1 + second)).toBe(false);
    expect(heads.readFast(bytes, first + 1, first + 1 + second)).toBe(true);
  });

  test.each([
    ["an empty line", ""],
    ["a line with a carriage return", `${message(3)}\r`],
    ["a torn line", message(3).slice(0, 100)],
    ["a line that is torn at its end", message(3).slice(0, -1)],
    ["a batch", entryText("message", id(3), id(2), { _batch: BATCH, message: {} })],
    ["a second role", message(3).replace('"content"', '"role":"assistant","content"')],
    ["a second role at the end", message(3).replace('"timestamp":5', '"role":5')],
    ["a member after the message", `${message(3).slice(0, -1)},"n":{"m":5}}`],
    ["capital digits", message(3).replace(id(3), id(3).toUpperCase())],
    ["an id that is longer", message(3).replace(id(3), `${id(3)}0`)],
  ])("are left to others where one is %s", (_, odd) => {
    const lines = [message(1), odd, message(4)];
    const [before, found, after] = readAhead(lines);
    expect([before, after]).toEqual([thorough(lines[0]), thorough(lines[2])]);
    if (found) expect(found).toEqual(thorough(odd.trimEnd()));
  });
});

test.each([
  entryText("message", id(1), null, { message: { role: "user", content: "a" } }),
  entryText("message", id(2), id(1), { message: { role: "bashExecution", command: "ls" } }),
  entryText("compaction", id(2), id(1), { summary: "s" }),
  entryText("custom", id(2), id(1), { customType: "pi-session-server.leaf" }),
  entryText("custom", id(2), id(1), { customType: "pi-session-server.leaf.not" }),
  entryText("label", id(2), id(1), { _batch: { session: "s", key: 'a"}\\', index: 0, count: 2 }, targetId: id(1) }),
  entryText("message", id(2), id(1), { _batch: BATCH, message: { role: "assistant" } }),
])("the usual line is read quickly: %s", (line) => {
  expect(quick(line)).toEqual(thorough(line));
});

test("however long the members before it are, the role and the marker are read right", () => {
  for (let length = HEAD_BYTES - 220; length < HEAD_BYTES + 20; length++) {
    const _batch = { session: "s".repeat(length), index: 0, count: 1 };
    const roles = [
      { role: "assistant", content: [] },
      { role: "bashExecution", command: "" },
    ];
    for (const line of [
      ...roles.map((message) => entryText("message", id(2), id(1), { _batch, message })),
      entryText("custom", id(2), id(1), { _batch, customType: "pi-session-server.leaf" }),
    ]) {
      const head = quick(line);
      if (head) expect(head, `${length}`).toEqual(thorough(line));
    }
  }
});

/** Changes that make a line unusual: a text and its replacement. */
const ODDITIES = [
  ['"type":', '"type": '],
  ...['"role":"us\\u0065r"', '"role":"visitor"', '"role":null'].map((to) => ['"role":"user"', to]),
  ['"role":"user",', ""],
  ...['"e5f6g7h8"', "7", `"\\u0061${id(3).slice(1)}"`, `"${id(3).toUpperCase()}"`].map((to) => [`"${id(3)}"`, to]),
  [`"id":"${id(3)}",`, ""],
  ['"parentId":null', '"parentId":""'],
  ['"parentId":null,', ""],
  [`"parentId":"${id(2)}"`, '"parentId":"x"'],
  [`,"timestamp":"${TIME}"`, ""],
  ...["1769271746831", '"\\u0032026"'].map((to) => [`"timestamp":"${TIME}"`, `"timestamp":${to}`]),
  ['"message":{', '"before":1,"message":{'],
  ...['"m\\u0065ssage"', '"messages"'].map((to) => ['"type":"message"', `"type":${to}`]),
  ['"type":"label"', '"type":"custom_message"'],
] as const;

test("odd lines are left to the thorough reading, or read as it does", () => {
  let left = 0;
  forSeeds(1200, (random) => {
    const base = random.pick([
      entryText("message", id(3), random.chance(0.5) ? id(2) : null, { message: { role: "user", content: "a" } }),
      entryText("custom", id(3), id(2), { customType: "pi-session-server.leaf", data: { leafId: null } }),
      entryText("label", id(3), null, { _batch: BATCH, targetId: id(1) }),
      entryText("message", id(3), null, { message: { role: "toolResult", toolCallId: "x" } }),
    ]);
    let line = base;
    for (let n = random.int(3); n >= 0; n--) {
      const [from, to] = random.pick(ODDITIES);
      line = line.replace(from, to);
    }
    const head = quick(line);
    expect(readAhead([line])[0], line).toEqual(head);
    if (!head) left++;
    else expect(head, line).toEqual(thorough(line));
  });
  expect(left).toBeGreaterThan(300);
});

test.each([
  ...["1", "[]", "null", '{"type":"message"'].map((line) => [line, "not a JSON object"]),
  ...["{}", '{"type":5}', '{"type":""}'].map((line) => [line, "no type"]),
])("the thorough reading says what is wrong with %s", (line, fault) => {
  expect(thorough(line)).toBe(fault);
});

test.each([
  ['{"type":"custom","id":7,"parentId":8}', "7", "8"],
  ['{"type":"custom","id":"","parentId":""}', "made", null],
  ['{"type":"custom","id":{},"parentId":null}', "made", null],
  ['{"type":"custom"}', "made", null],
  ['{"message":{},"parentId":"x","id":"first","timestamp":"t","id":"last","type":"message"}', "last", "x"],
  ['{"type":"custom","id":"__proto__","parentId":"constructor"}', "__proto__", "constructor"],
])("the thorough reading knows the ids of %s", (line, id, parentId) => {
  expect(thorough(line)).toMatchObject({ id, parentId });
});

/** Members of a body, usual or not; some of them decide the head. */
function body(random: Random): Record<string, unknown> {
  const roles = ["user", "assistant", "toolResult", "hookMessage", "custom", "strange", "", 7, null, undefined];
  const messages = [undefined, null, [], "text", 5, {}, ...roles.map((role) => ({ role, content: "a" }))];
  const marker = ["pi-session-server.leaf", "pi-session-server.leaf.not", "", 3, undefined];
  return { message: random.pick(messages), customType: random.pick(marker), summary: random.hex(6) };
}

test("the head that travels with a new line is the one that the line gives", () =>
  forSeeds(300, (random) => {
    const type = random.pick(["message", "custom", "compaction", "label", "custom_message", "strange"]);
    const values = body(random);
    const text = toBytes(JSON.stringify({ type, ...values }));
    // Twice the same member: parsers take the last, so that only the line shows it.
    const twice = toBytes(`{"type":"${type}","message":{"role":"user"},"message":{"role":"assistant"},"n":1}`);
    const drafts = [
      makeDraft(type, values),
      makeValueDraft(type, values),
      makeTextDraft(text, { start: 0, end: text.length }),
      makeTextDraft(twice, { start: 0, end: twice.length }),
      makeDraft(type, { ...values, message: toBytes('{"role":"user"}') }),
    ];
    const batch = random.chance(0.5) ? { session: "s", index: 0, count: 2 } : undefined;
    const made = random.pick([id(2), "an id of another kind"]);
    const parent = random.pick([null, id(1), "another parent"]);
    let known = 0;
    for (const draft of drafts) {
      const { line, head } = makeNewLine(draft, makeNewPlace(made, parent, TIME), batch);
      if (!head) continue;
      known++;
      const found = quick(Buffer.from(line).toString()) ?? thorough(Buffer.from(line).toString());
      expect(pick(head), Buffer.from(line).toString()).toEqual(found);
    }
    // Codes of other types differ from session to session.
    expect(known).toBe(type === "strange" ? 0 : 3);
  }));

describe("the ends of a line", () => {
  const ends = (line: string, isWhole = true): Head | null => {
    const heads = new HeadReader(new Nodes());
    const bytes = toBytes(line);
    return heads.readEnds(bytes, 0, bytes.length, isWhole) ? pick(heads) : null;
  };
  const LONG = 'a "quote" \\ {"role":"user"},"type":"label" \u00fc\n'.repeat(40);
  const shuffled = (random: Random, value: object): object => {
    const places = new Map(Object.keys(value).map((name) => [name, random.next()]));
    const placeOf = ([name]: [string, unknown]): number => places.get(name) as number;
    return Object.fromEntries(Object.entries(value).sort((a, b) => placeOf(a) - placeOf(b)));
  };
  const entryOf = (random: Random): object => {
    const text = random.int(3) === 0 ? "short" : LONG;
    const ids = ["a0000001", "8d3f0f5e-6f2e-4d47-9a2e-1f1f6c1b2a3b", "x.1", 'q"'];
    const role = ["user", "assistant", "toolResult", "judge"][random.int(4)];
    const usage = { input: 1, cost: { total: 0.5 } };
    const message = shuffled(random, { role, content: [{ type: "text", text }], usage, [`x${random.int(9)}`]: {} });
    const type = ["message", "message", "custom", "label", "verdict"][random.int(5)];
    const body = type === "message" ? { message } : { customType: "pi-session-server.leaf", data: { text } };
    return shuffled(random, {
      type,
      id: ids[random.int(4)],
      parentId: [null, ...ids][random.int(5)],
      timestamp: TIME,
      ...(random.int(4) === 0 ? { _batch: BATCH } : {}),
      ...body,
    });
  };

  test("never say anything else than the whole line", () => {
    forSeeds(300, (random) => {
      const line = JSON.stringify(entryOf(random), null, random.int(2)).replaceAll("\n", " ");
      for (const isWhole of [true, false]) {
        const found = ends(line, isWhole);
        // A batch between long texts is one that no program writes.
        const whole = thorough(line) as Head;
        if (found) expect({ ...found, flags: found.flags | 4 }, line).toEqual({ ...whole, flags: whole.flags | 4 });
      }
    });
  });

  test.each<[string, object]>([
    ["with another id", { type: "message", id: "u-1", parentId: "u-0", message: { role: "user", content: LONG } }],
    [
      "sorted",
      { id: "a0000001", message: { content: LONG, role: "user", usage: {} }, parentId: null, type: "message" },
    ],
    ["backwards", { message: { usage: {}, role: "user", content: LONG }, parentId: "u-0", id: "u-1", type: "message" }],
    ["of a custom entry", { data: LONG, customType: "note", id: "u-1", parentId: null, type: "custom" }],
    ["of a compaction", { type: "compaction", id: "u-1", parentId: "a0000001", summary: LONG }],
  ])("tell the head of a line %s", (_, entry) => {
    for (const space of [0, 1]) {
      const line = JSON.stringify(entry, null, space).replaceAll("\n", " ");
      expect(ends(line)).toEqual(thorough(line));
      const cut = line.slice(0, HEAD_BYTES) + line.slice(-HEAD_BYTES);
      expect(ends(cut), "without what is between them").toEqual(thorough(line));
    }
  });
});

describe("a member that stands twice", () => {
  const user = entryText("message", id(2), id(1), { message: { role: "user", content: "a", timestamp: 5 } });
  const custom = entryText("custom", id(2), id(1), { customType: "note", data: "y".repeat(40), n: 1 });
  const uuid = user.replace(id(2), "8d3f0f5e-6f2e-4d47-9a2e-1f1f6c1b2a3b");
  const long = user.replace('"a"', JSON.stringify("x".repeat(3 * HEAD_BYTES)));
  const atEnd = (line: string, more: string) => `${line.slice(0, -1)},${more}}`;

  test.each([
    ["role", '"role":"user"', '"role":"user","role":"assistant"'],
    ["role, last in the message", '"timestamp":5}', '"role":"assistant"}'],
    ["role, with a space", '"timestamp":5}', '"role": "assistant"}'],
    ["role that is no text", '"timestamp":5}', '"role":null}'],
    ["customType", '"customType":"note"', '"customType":"note","customType":"pi-session-server.leaf"'],
    ["id, at once", '"parentId"', `"id":"${id(9)}","parentId"`],
    [
      "no member, where the marker stands late",
      '"customType":"note",',
      '"data":{},"customType":"pi-session-server.leaf",',
    ],
    ["no member, in a marker with an escape", '"note"', '"pi-session-server.\\u006ceaf"'],
    ["no member, in a marker that begins with one", '"note"', '"\\u0070i-session-server.leaf"'],
    ["no member, where the marker is no text", '"note"', "7"],
  ])("%s: every reader of heads takes the last, as a parser does", (_, from, to) => {
    expectAgreement(
      [user, custom, uuid, long].filter((line) => line.includes(from)).map((line) => line.replace(from, to)),
    );
  });

  test.each([
    `"id":"${id(9)}"`,
    '"id":"another-id"',
    '"parentId":null',
    `"parentId":"${id(9)}"`,
    '"parentId":7',
    '"type":"label"',
    '"customType":"pi-session-server.leaf"',
    '"message":{"role":"assistant"},"id":"x"',
    `"id" : "${id(9)}" `,
  ])("%s at the end of the line: every reader of heads takes the last, as a parser does", (more) => {
    expectAgreement([user, custom, uuid, long].map((line) => atEnd(line, more)));
  });

  function expectAgreement(lines: string[]): void {
    for (const line of lines) {
      const own = thorough(line) as Head;
      const { type, id: parsed } = JSON.parse(line);
      expect([unpacked(own), KNOWN_TYPES[own.type]], line).toEqual([parsed, type]);
      const bytes = toBytes(line);
      const frame = { payloadStart: 0, payloadEnd: bytes.length, entryId: "made" } as Frame;
      const readers: [string, (heads: HeadReader) => unknown][] = [
        ["readFast", (heads) => heads.readFast(bytes, 0, bytes.length)],
        ["readAhead", (heads) => Object.assign(heads, readAhead([line])[0] ?? {}) && readAhead([line])[0] !== null],
        ["readEnds", (heads) => heads.readEnds(bytes, 0, bytes.length, true)],
        ["readEntry", (heads) => readEntry(heads, bytes, frame)],
      ];
      for (const [name, read] of readers) {
        const heads = new HeadReader(new Nodes());
        if (read(heads) !== false) expect(pick(heads), `${name}: ${line}`).toEqual(own);
      }
    }
  }
  const unpacked = ({ packedId, id }: Head) => (packedId < 0 ? id : unpackId(packedId));

  test("costs a long line as it is usually written nothing", () => {
    const bytes = toBytes(long);
    expect(new HeadReader(new Nodes()).readFast(bytes, 0, bytes.length)).toBe(true);
  });
});
