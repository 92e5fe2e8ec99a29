/** No half of a surrogate pair goes out where readers refuse a text that has one. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { bytesWithoutHalves, withoutHalves } from "../../../src/core/json/halves.ts";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { editorHere } from "../../support/acp.ts";
import { put } from "../../support/lifecycle.ts";
import { fileText, headerText } from "../../support/lines.ts";
import { serveHere, temporaryPlace } from "../../support/server.ts";

const HALF = "\\ud83d";
const ALONE = "\\ufffd";

test.each([
  ["a", "a"],
  [HALF, ALONE],
  ["\\uDE00x", `${ALONE}x`],
  ["\\ud83d\\ude00", "\\ud83d\\ude00"],
  ["\\uD83D\\uDE00\\uD83D", `\\uD83D\\uDE00${ALONE}`],
  [`${HALF}${HALF}\\ude00`, `${ALONE}${HALF}\\ude00`],
  ["\\\\ud83d", "\\\\ud83d"],
  [`\\\\${HALF}`, `\\\\${ALONE}`],
  ["\\ud7ff \\ue000 \\u2028", "\\ud7ff \\ue000 \\u2028"],
  [`${HALF}\\n\\ude00`, `${ALONE}\\n${ALONE}`],
  [`${HALF}\\`, `${ALONE}\\`],
])("%s becomes %s, as text and as bytes", (given, wanted) => {
  expect(withoutHalves(given)).toBe(wanted);
  expect(textOf(bytesWithoutHalves(bytesOf(given)))).toBe(wanted);
});

test("messages of the context, what is made of texts, and editors have U+FFFD; entries are as the file is", async () => {
  const place = temporaryPlace();
  const line = `{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-01-24T16:22:26.831Z","message":{"role":"user","content":"cut ${HALF}","timestamp":1}}`;
  const file = put(join(place.home, "half.jsonl"), fileText(headerText({ id: "half", cwd: place.cwd }), line));
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const ask = async (method: string): Promise<string> => {
    const said: Promise<string> = new Promise((resolve) => server.output.once("data", (bytes) => resolve(`${bytes}`)));
    await server.result(method);
    return said;
  };
  for (const method of ["get_messages", "get_context", "get_fork_messages", "get_tree"])
    expect([method, await ask(method)]).toEqual([method, expect.not.stringContaining(HALF)]);
  expect(await ask("get_messages")).toContain(`cut ${ALONE}`);
  expect(await ask("get_entries")).toContain(line);
  await server.finish();
  const editor = await editorHere(["--session", file], { place });
  const heard: Buffer[] = [];
  editor.server.output.on("data", (bytes: Buffer) => heard.push(bytes));
  await editor.result("session/load", { sessionId: "half", cwd: place.cwd, mcpServers: [] });
  expect(`${Buffer.concat(heard)}`).toContain("cut ");
  expect(`${Buffer.concat(heard)}`).not.toContain(HALF);
});

test("labels of a nested tree have U+FFFD, and its entries are as the file is", async () => {
  const place = temporaryPlace();
  const time = '"timestamp":"2026-01-24T16:22:26.831Z"';
  const line = `{"type":"message","id":"00000001","parentId":null,${time},"message":{"role":"user","content":"cut ${HALF}","timestamp":1}}`;
  const label = `{"type":"label","id":"00000002","parentId":"00000001",${time},"targetId":"00000001","label":"a ${HALF}"}`;
  const file = put(join(place.home, "half.jsonl"), fileText(headerText({ id: "half", cwd: place.cwd }), line, label));
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const heard: Buffer[] = [];
  server.output.on("data", (bytes: Buffer) => heard.push(bytes));
  await server.result("get_tree", { format: "nested" });
  expect(`${Buffer.concat(heard)}`).toContain(`"entry":${line}`);
  expect(`${Buffer.concat(heard)}`).toContain(`"label":"a ${ALONE}"`);
});

test("names, refusals and training records have U+FFFD, too, in both dialects", async () => {
  const place = temporaryPlace();
  const line = (id: number, rest: string): string =>
    `{"type":"message","id":"0000000${id}","parentId":${id === 1 ? null : `"0000000${id - 1}"`},"timestamp":"2026-01-24T16:22:26.831Z",${rest}}`;
  const lines = [
    line(1, `"message":{"role":"user","content":"cut ${HALF}","timestamp":1}`),
    line(2, `"message":{"role":"assistant","content":[{"type":"text","text":"cut ${HALF}"}],"timestamp":1}`),
    line(3, `"name":"cut ${HALF}"`).replace("message", "session_info"),
  ];
  const file = put(join(place.home, "half.jsonl"), fileText(headerText({ id: "half", cwd: place.cwd }), ...lines));
  for (const isPi of [true, false]) {
    const server = serveHere(["--session", file, "--events", "none"], { place });
    const heard: Buffer[] = [];
    server.output.on("data", (bytes: Buffer) => heard.push(bytes));
    const asked = { get_state: {}, export_session: { format: "training" }, get_entry: { entryId: "\ud83d" } };
    for (const [name, params] of Object.entries(asked)) {
      const call = isPi ? { type: name, ...params } : { jsonrpc: "2.0", method: name, params };
      server.input.write(`${JSON.stringify({ id: name, ...call })}\n`);
    }
    await server.finish();
    const replies = `${Buffer.concat(heard)}`.trim().split("\n");
    expect(replies.map((reply) => reply.includes(ALONE))).toEqual([true, true, true]);
    expect(replies.join()).not.toContain(HALF);
  }
});
