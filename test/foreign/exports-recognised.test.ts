/** Which agent a file is of: by what is in it, and by nothing else. */

import { expect, test } from "vitest";
import { BYTES_SEEN } from "../../src/core/foreign/translator.ts";
import { translatorOf } from "../../src/core/foreign/translators.ts";
import { wholeClaudeSession } from "../support/foreign/claude.ts";
import { wholeCopilotLog } from "../support/foreign/copilot.ts";
import { wholeGooseExport } from "../support/foreign/goose.ts";
import { wholeOpencodeExport } from "../support/foreign/opencode.ts";

const FILES: Readonly<Record<string, string>> = {
  claude: wholeClaudeSession().text,
  copilot: wholeCopilotLog().text,
  goose: wholeGooseExport().text,
  opencode: wholeOpencodeExport().text,
};

function agentOf(text: string): string | undefined {
  const bytes = Buffer.from(text);
  return translatorOf(bytes.subarray(0, BYTES_SEEN), bytes.length <= BYTES_SEEN)?.agent;
}

test.each(Object.entries(FILES))("a file of %s is known as one", (agent, text) => {
  expect(agentOf(text)).toBe(agent);
});

test.each(["goose", "opencode"])(
  "an export of %s is known on one line, after spaces, and longer than what is read of it",
  (agent) => {
    const document = JSON.parse(FILES[agent]);
    expect(agentOf(JSON.stringify(document))).toBe(agent);
    expect(agentOf(`\n\n  ${JSON.stringify(document)}`)).toBe(agent);
    const first = agent === "goose" ? document.conversation : document.messages;
    const long = { ...document, [agent === "goose" ? "conversation" : "messages"]: [...first, "x".repeat(BYTES_SEEN)] };
    expect(agentOf(JSON.stringify(long))).toBe(agent);
    expect(agentOf(JSON.stringify(long, null, 2))).toBe(agent);
  },
);

test("a long fact before its messages does not hide whose export it is", () => {
  const goose = { ...JSON.parse(FILES.goose), extension_data: { x: "x".repeat(BYTES_SEEN) } };
  expect(agentOf(JSON.stringify(goose))).toBe("goose");
  const { info, messages } = JSON.parse(FILES.opencode);
  const opencode = { info: { ...info, summary: { diffs: ["x".repeat(BYTES_SEEN)] } }, messages };
  expect(agentOf(JSON.stringify(opencode))).toBe("opencode");
});

const OURS = '{"type":"session","version":3,"id":"a1","timestamp":"2026-09-14T08:00:00Z","cwd":"/x"}';

test.each([
  ["our own header", OURS],
  ["our own header before another agent's lines", `${OURS}\n${FILES.copilot}`],
  ["nothing", ""],
  ["a text", "once upon a time"],
  ["an empty object", "{}"],
  ["an array", "[]"],
  ["a package", '{"name":"x","version":"1.0.0","info":{"id":"x","version":"1"},"messages":[]}'],
  ["an interface description", '{"openapi":"3.1.0","info":{"title":"ses","version":"1"},"paths":{}}'],
  ["a conversation of something else", '{"id":"1","title":"x","conversation":[{"role":"user"}]}'],
  ["a log of something else", '{"type":"session.start","timestamp":1,"data":null}\n{"type":"x","data":{},"id":"1"}'],
])("%s is no session of another agent", (_, text) => {
  expect(agentOf(text)).toBe(undefined);
});
