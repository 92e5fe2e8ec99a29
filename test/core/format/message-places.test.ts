/** Places in the bytes of a message are those of the values that a parser finds, or the line is left to the parser. */

import { expect, test } from "vitest";
import { MessagePlaces, PLACE } from "../../../src/core/format/message-places.ts";
import { MAX_BYTES } from "../../../src/core/json/fast-path.ts";
import { parse, toBytes } from "../../../src/core/json/json.ts";
import { hostileMessageLine } from "../../support/message-lines.ts";
import { forSeeds } from "../../support/random.ts";
import { acrossTiers } from "../../support/tiers.ts";

type Members = Record<string, unknown>;

const MEMBERS = ["role", "toolName", "isError", "exitCode", "cancelled", "stopReason", "command"] as const;
const places = new MessagePlaces();

function valueAt(line: Uint8Array, place: (typeof PLACE)[keyof typeof PLACE]): unknown {
  return places.end(place) === 0 ? undefined : parse(line, places.start(place), places.end(place));
}

/** Compares the places found in a line with its value. */
function expectFound(line: Uint8Array): void {
  const { message, timestamp } = parse(line) as { message: Members; timestamp?: unknown };
  expect(valueAt(line, PLACE.timestamp)).toEqual(timestamp);
  for (const name of MEMBERS) expect(valueAt(line, PLACE[name]), name).toEqual(message[name]);
  const { content } = message;
  const blocks: Members[] = (Array.isArray(content) ? content : []).filter(
    (block) => typeof block === "object" && block !== null && !Array.isArray(block),
  );
  const texts =
    typeof content === "string"
      ? [content]
      : blocks.filter(({ type, text }) => type === "text" && typeof text === "string").map(({ text }) => text);
  expect(places.texts).toBe(texts.length);
  expect(valueAt(line, PLACE.text)).toEqual(texts.at(-1));
  const calls = blocks.filter(({ type }) => type === "toolCall");
  expect(places.calls().map(({ start, end }) => parse(line, start, end))).toEqual(calls);
}

const PICTURE = { type: "image", data: "", mimeType: "x" };

test.each([
  { role: "user", content: "a" },
  { role: "user", content: [] },
  { role: "user", content: [{ type: "text", text: 'a "b" \\ \n' }, PICTURE] },
  {
    role: "assistant",
    content: [
      { type: "thinking", thinking: "[{" },
      { type: "text", text: "" },
      { type: "toolCall", id: "1", name: "bash", arguments: { command: "ls", more: [{ a: "]}" }] } },
      { type: "toolCall", id: "2", name: "read", arguments: {} },
    ],
    usage: { input: 1, cost: { total: 0.1 } },
    stopReason: "toolUse",
    timestamp: 1,
  },
  { role: "toolResult", toolName: "read", content: [{ type: "text", text: "é漢😀" }], isError: true },
  { role: "bashExecution", command: "ls", exitCode: 1, cancelled: false },
])("the lines that Pi writes are found in: %j", (message) => {
  const line = toBytes(JSON.stringify({ type: "message", id: "a", parentId: null, timestamp: "t", message }));
  expect(places.read(line)).toBe(true);
  expectFound(line);
});

test.each([
  ["a member of another entry", '{"type":"message","summary":"s","message":{}}'],
  ["two messages", '{"message":{},"message":{}}'],
  ["a message that is none", '{"message":[]}'],
  ["no message", '{"type":"message"}'],
  ["no members", "{}"],
  ["no object", "[]"],
  ["an escape in a name", '{"message":{"ro\\u006ce":"user"}}'],
  ["an escape in a type", '{"message":{"content":[{"type":"te\\u0078t","text":"a"}]}}'],
  ["white space before a colon", '{"message":{"role" :"user"}}'],
  ["white space before a member's value", '{"timestamp": "t","message":{}}'],
  ["white space before a role", '{"message":{"role": "user"}}'],
  ["white space before a content", '{"message":{"content": "a"}}'],
  ["white space before a list of blocks", '{"message":{"content":\t[{"type":"text","text":"a"}]}}'],
  ["white space before a block", '{"message":{"content":[ "a",{"type":"text","text":"a"}]}}'],
  ["white space before a type", '{"message":{"content":[{"type": "text","text":"a"}]}}'],
  ["white space before a text", '{"message":{"content":[{"type":"text","text": "a"}]}}'],
  ["many calls", `{"message":{"content":[${Array(65).fill('{"type":"toolCall"}')}]}}`],
  ["more bytes than there is room for", `{"message":{"content":"${"a".repeat(MAX_BYTES)}"}}`],
])("a line with %s is left to the parser", (_, text) => {
  expect(places.read(toBytes(text))).toBe(false);
});

acrossTiers(test, [120, 2000])("whatever is found in %i hostile lines is what a parser finds", (count) => {
  let found = 0;
  forSeeds(count, (random) => {
    const line = toBytes(hostileMessageLine(random, random.hex(8), null));
    if (!places.read(line)) return;
    found++;
    expectFound(line);
  });
  expect(found).toBeGreaterThan(count / 4);
});
