/** Every JSON object of the documents that describe the format is read without damage and can be appended. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ENTRY_ID, makeTextDraft } from "../../src/core/format/entry.ts";
import { draft, entryTypes } from "../../src/core/format/schemas.ts";
import { decodeText, findMember, getMembers, toBytes } from "../../src/core/json/json.ts";
import { fileText, headerText, linesOf, userText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { REFERENCE, REFERENCE_FOLDER } from "../support/programs.ts";
import { diskWith, FILE, messagesAt, openOn } from "../support/sessions.ts";

const FOLDER = join(REFERENCE, "seeds");
/** The mark of the documents for an omitted id or time. */
const LEFT_OUT = "...";
/** Characters that no object of the documents goes beyond. */
const LONGEST = 20_000;

interface Found {
  readonly text: string;
  readonly value: Record<string, unknown>;
}

/** Returns the outermost JSON objects, on one line or many: each ends with the first brace that makes it JSON. */
function objectsIn(text: string): Found[] {
  const found: Found[] = [];
  for (let at = text.indexOf("{"); at >= 0; at = text.indexOf("{", at + 1)) {
    const object = objectAt(text, at);
    if (object === undefined) continue;
    found.push(object);
    at += object.text.length - 1;
  }
  return found;
}

function objectAt(text: string, start: number): Found | undefined {
  for (let end = text.indexOf("}", start) + 1; end > 0 && end < start + LONGEST; end = text.indexOf("}", end) + 1)
    try {
      return { text: text.slice(start, end), value: JSON.parse(text.slice(start, end)) };
    } catch {
      // It goes on behind this brace, or is no JSON.
    }
  return undefined;
}

const OBJECTS = existsSync(FOLDER)
  ? readdirSync(FOLDER)
      .filter((name) => name.endsWith(".txt"))
      .sort()
      .flatMap((name) => objectsIn(readFileSync(join(FOLDER, name), "utf8")).map((found) => ({ name, ...found })))
  : [];
const ENTRIES = OBJECTS.filter(({ value }) => typeof value.type === "string" && value.type !== "session");
const HEADERS = OBJECTS.filter(({ value }) => value.type === "session");

/** The object's text on one line, with an id and a time where the document leaves them out. */
function lineOf({ text, value }: Found): string {
  const line = text.replace(/\r?\n/g, " ");
  return value.id === LEFT_OUT ? line.replace(`"id":"${LEFT_OUT}"`, '"id":"01eff007"') : line;
}

/** Entries that the object refers to, and that must be there for it to stand in a whole session. */
function stubsOf({ value }: Found): string[] {
  const named = new Set<string>();
  // The parent comes last, for what the object continues is where the conversation stands.
  for (const name of ["targetId", "firstKeptEntryId", "fromId", "parentId"])
    if (typeof value[name] === "string" && value[name] !== value.id) {
      named.delete(value[name]);
      named.add(value[name]);
    }
  if (value.id === LEFT_OUT && value.parentId === LEFT_OUT) named.add(LEFT_OUT);
  const ids = [...named];
  return ids.map((id, n) => userText(id, ids[n - 1] ?? null, id));
}

describe("the documents", needs(REFERENCE_FOLDER), () => {
  test("hold entries of every type of the format, and headers", () => {
    const types = ENTRIES.map(({ value }) => value.type);
    const all =
      "message model_change thinking_level_change compaction branch_summary custom custom_message label session_info";
    expect(types).toEqual(expect.arrayContaining(all.split(" ")));
    expect(HEADERS.length).toBeGreaterThanOrEqual(3);
    expect(ENTRIES.some(({ text }) => text.includes("\n"))).toBe(true);
  });

  const CASES = ENTRIES.map((entry) => [entry.name, lineOf(entry), entry] as const);

  test.each(CASES)("%s: %s is read", (_, line, entry) => {
    const session = openOn(diskWith(fileText(headerText(), ...stubsOf(entry), line)));
    // A command or a part of a message: as a line of a session it lacks an id and nothing else.
    const lacking = [expect.objectContaining({ kind: "missing_id", salvaged: true })];
    expect(session.diagnostics).toEqual(entry.value.id === undefined ? lacking : []);
    if (entry.value.id === undefined) return;
    expect(decodeText(session.line(session.log.nodes.count - 1))).toBe(line);
    expect(session.leafId).toBe(JSON.parse(line).id);
    expect(session.messageCount()).toBe(messagesAt(session).length);
  });

  test.each(CASES)("%s: %s is appended", async (_, line, entry) => {
    expect(draft.safeParse(entry.value).error).toBeUndefined();
    const schema = Object.entries(entryTypes).find(([type]) => type === entry.value.type)?.[1];
    expect(schema?.safeParse(entry.value).error).toBeUndefined();
    const disk = diskWith(fileText(headerText(), ...stubsOf(entry)));
    const session = openOn(disk);
    const bytes = toBytes(line);
    const sent = makeTextDraft(bytes, { start: 0, end: bytes.length });
    if (sent.id !== undefined) expect(sent.id).toMatch(ENTRY_ID);
    const { ids } = session.append([sent]);
    await session.commit();
    const written = linesOf(disk.content(FILE) as Uint8Array).at(-1) as string;
    expect(written).toBe(decodeText(session.line(session.position(ids[0]))));
    const read = getMembers(toBytes(written)) ?? [];
    for (const { name, start, end } of getMembers(bytes) ?? []) {
      const member = findMember(read, name);
      expect(member && decodeText(toBytes(written), member.start, member.end), name).toBe(
        decodeText(bytes, start, end),
      );
    }
    expect(openOn(disk).diagnostics).toEqual([]);
  });

  test.each(HEADERS.map((header) => [lineOf(header), header.value] as const))(
    "%s begins a session, and is not appended",
    (line, value) => {
      const session = openOn(diskWith(fileText(line)));
      expect([session.diagnostics, session.log.nodes.count]).toEqual([[], 0]);
      const { parentSession, branchedFrom } = JSON.parse(line);
      expect(session.parentSession).toBe(parentSession ?? branchedFrom ?? null);
      expect(draft.safeParse(value).success).toBe(false);
    },
  );

  test("what has no type is no entry, and is read past", () => {
    for (const { text, value } of OBJECTS.filter((one) => one.value.type === undefined)) {
      const session = openOn(diskWith(fileText(headerText(), text.replace(/\r?\n/g, " "))));
      expect(session.diagnostics).toEqual([expect.objectContaining({ kind: "bad_line" })]);
      expect(draft.safeParse(value).success).toBe(false);
    }
  });
});
