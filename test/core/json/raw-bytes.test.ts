/** Unchanged bytes are written, forked and migrated exactly as they were read. */

import { describe, expect, test } from "vitest";
import { makeDraft, makeEntryLine, makeTextDraft, patchMembers } from "../../../src/core/format/entry.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import { fileText, headerText, id, linesOf, TIME, userText } from "../../support/lines.ts";
import { forSeeds } from "../../support/random.ts";
import { diskWith, FILE, openOn, textsOf } from "../../support/sessions.ts";

/** Texts of members that a reader would write differently. */
const ODD = [
  '"n":1.0',
  '"n":1e400',
  '"n":9007199254740993',
  '"n":-0',
  '"n":0.10000000000000000001',
  '"n":1,"n":2,"n":1',
  '"\\u0041":"\\u0042\\/"',
  '"u":"\u2028\u2029\u0085\u007f"',
  '"s":"\\ud800"',
  '"space" : [ 1 ,\t2 ]',
  '"":{"":null}',
  '"__proto__":{"x":1},"constructor":[]',
  '"nested":{"type":"message","id":"x","parentId":"y"}',
];

const MESSAGES = ODD.map((odd, n) => `{"role":"user",${odd},"content":"text ${n}"}`);

/** Entries whose base members stand in every order among odd ones; every third is of an unknown type. */
function oddLines(withIds: boolean): string[] {
  return ODD.map((odd, n) => {
    const parentId = n === 0 ? "null" : `"${id(n - 1)}"`;
    const base = [`"type":"${n % 3 === 0 ? "unheard_of" : "message"}"`, `"timestamp":"${TIME}"`];
    if (withIds) base.push(`"id":"${id(n)}"`, `"parentId":${parentId}`);
    for (let turns = n % 4; turns > 0; turns--) base.push(base.shift() as string);
    return `{${[...base, `"message":${MESSAGES[n]}`, odd].join(",")}}`;
  });
}

const LINES = oddLines(true);
const HOOK = `{"type":"message","id":"${id(50)}","parentId":null,"message":{"role":"hookMessage","n":1.0,"content":"x"}}`;

async function append(session: ReturnType<typeof openOn>): Promise<void> {
  session.append([{ type: "message", rest: toBytes(',"message":{"role":"user","content":"new"}') }]);
  await session.commit();
}

describe("lines that are there are as they were", () => {
  // In memory and in the file.
  test.each<[string, string, string[], string[], string?]>([
    [
      "when a version 2 file is published as version 3",
      headerText({ version: 2 }),
      [...LINES, HOOK],
      [...LINES, HOOK.replace("hookMessage", "custom")],
    ],
    ["when the header loses its leaf", headerText({ leafId: id(2), x: 1.5 }), LINES, LINES, headerText({ x: 1.5 })],
  ])("%s", async (_, header, lines, kept, newHeader = headerText()) => {
    const disk = diskWith(fileText(header, ...lines));
    const session = openOn(disk);
    await append(session);
    expect(textsOf(session.log).slice(0, -1)).toEqual(kept);
    expect(linesOf(disk.content(FILE) as Uint8Array).slice(0, -1)).toEqual([newHeader, ...kept]);
  });

  test("but for ids, when a version 1 file is published as version 3", async () => {
    const nameless = oddLines(false);
    const disk = diskWith(fileText(headerText({ version: undefined }), ...nameless));
    await append(openOn(disk));
    const lines = linesOf(disk.content(FILE) as Uint8Array).slice(1, -1);
    const given = /,"id":"[0-9a-f]{8}","parentId":(null|"[0-9a-f]{8}")/;
    expect(lines.map((line) => line.replace(given, ""))).toEqual(nameless);
    expect(lines.every((line) => given.test(line))).toBe(true);
  });
});

describe("drafts", () => {
  const written = (text: string) => {
    const bytes = toBytes(text);
    const draft = makeTextDraft(bytes, { start: 0, end: bytes.length });
    return decodeText(makeEntryLine({ ...draft, id: id(1), parentId: null, timestamp: TIME }));
  };
  const given = '{"a":1,"timestamp":"t","b":2,"id":"x","parentId":"y","c":3,"type":"custom"}';

  test.each([
    ...ODD.map((odd) => [`{"type":"custom","customType":"x",${odd}}`, `,"customType":"x",${odd}`]),
    ...ODD.map((odd) => [`{${odd},"type":"custom"}`, `,${odd}`]),
    // The base members come first, wherever those stood and however they were written.
    [given, ',"a":1,"b":2,"c":3'],
    ['{"\\u0069d":"x","t\\u0079pe":"custom","d":4}', ',"d":4'],
    // `_batch` is not one of the host's own members.
    ['{"type":"custom","_batch":{"session":"s","index":0,"count":9},"a":1}', ',"a":1'],
    ['{"type":"custom"}', ""],
    [' { "type" : "custom" } ', ""],
  ])("%s is kept as it was sent", (sent, rest) => {
    expect(written(sent)).toBe(`{"type":"custom","id":"${id(1)}","parentId":null,"timestamp":"${TIME}"${rest}}`);
  });

  test("are objects", () => {
    for (const text of ["[]", "1", "null", '"x"', "{", ""])
      expect(() => makeTextDraft(toBytes(text), { start: 0, end: text.length }), text).toThrow(TypeError);
  });

  test("of ours leave out what is undefined and keep texts as texts", () => {
    const draft = makeDraft("custom", { a: undefined, b: null, c: "é", d: toBytes('{"n":1.0,\n"m":2}'), e: false });
    expect(typeof draft.rest === "string" ? draft.rest : decodeText(draft.rest)).toBe(
      ',"b":null,"c":"é","d":{"n":1.0, "m":2},"e":false',
    );
    expect(makeDraft("custom", {}).rest).toHaveLength(0);
  });
});

describe("patching", () => {
  test("changes the named values and nothing else", () => {
    forSeeds(80, (random) => {
      const parts = Array.from({ length: 1 + random.int(6) }, () =>
        random.pick(['"a":1', '"a" : "x,}"', '"b":{"a":2}', '"c":[{"a":3}]', '"\\u0061":5', '"d": null ']),
      );
      const line = `${random.pick(["", " "])}{${parts.join(random.pick([",", " , "]))}}`;
      const patched = decodeText(patchMembers(toBytes(line), { a: toBytes('"new"'), z: toBytes("0") }));
      const wanted = line.replaceAll(/("a" ?: ?|"\\u0061":)(1|"x,\}"|5)/g, '$1"new"');
      expect(patched).toBe(wanted);
    });
  });

  test("of what is no object changes nothing", () => {
    expect(decodeText(patchMembers(toBytes("[1]"), { a: toBytes("2") }))).toBe("[1]");
    const line = userText(id(0), null);
    expect(decodeText(patchMembers(toBytes(line), {}))).toBe(line);
    expect(decodeText(patchMembers(toBytes(line), { toString: toBytes("1"), __proto__: toBytes("2") } as never))).toBe(
      line,
    );
  });
});
