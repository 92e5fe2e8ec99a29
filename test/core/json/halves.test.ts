/** No half of a surrogate pair goes out where readers refuse a text that has one. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { bytesWithoutHalves, withoutHalves } from "../../../src/core/json/halves.ts";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { editorHere } from "../../support/acp.ts";
import { put } from "../../support/lifecycle.ts";
import { fileText, headerText } from "../../support/lines.ts";
import { type Json, serveHere, temporaryPlace } from "../../support/server.ts";

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
  const ask = async (method: string, params: Json = {}): Promise<string> => {
    const said: Promise<string> = new Promise((resolve) => server.output.once("data", (bytes) => resolve(`${bytes}`)));
    await server.result(method, params);
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
