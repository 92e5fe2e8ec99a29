/** No half of a surrogate pair goes out where readers refuse a text that has one. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { replaceHalves, replaceHalvesInBytes } from "../../../src/core/json/halves.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
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
  expect(replaceHalves(given)).toBe(wanted);
  expect(decodeText(replaceHalvesInBytes(toBytes(given)))).toBe(wanted);
});

const said = (n: number, rest: string): string =>
  `{"type":"message","id":"0000000${n}","parentId":${n === 1 ? null : `"0000000${n - 1}"`},"timestamp":"2026-01-24T16:22:26.831Z",${rest}}`;
const LINE = said(1, `"message":{"role":"user","content":"cut ${HALF}","timestamp":1}`);

/** A server on a session with these lines, and its later output. */
function serveHalf(...lines: string[]) {
  const place = temporaryPlace();
  const file = put(join(place.home, "half.jsonl"), fileText(headerText({ id: "half", cwd: place.cwd }), ...lines));
  return heardOf(serveHere(["--session", file, "--events", "none"], { place }));
}

function heardOf<S extends { readonly output: NodeJS.ReadableStream }>(server: S): { server: S; heard: () => string } {
  const chunks: Buffer[] = [];
  server.output.on("data", (bytes: Buffer) => chunks.push(bytes));
  return { server, heard: () => `${Buffer.concat(chunks.splice(0))}` };
}

test("messages of the context, and what is made of texts have U+FFFD; entries are as the file is", async () => {
  const { server, heard } = serveHalf(LINE);
  const ask = async (method: string): Promise<string> => {
    await server.result(method);
    return heard();
  };
  for (const method of ["get_messages", "get_context", "get_fork_messages", "get_tree"])
    expect([method, await ask(method)]).toEqual([method, expect.not.stringContaining(HALF)]);
  expect(await ask("get_messages")).toContain(`cut ${ALONE}`);
  expect(await ask("get_entries")).toContain(LINE);
});

test("labels of a nested tree have U+FFFD, and its entries are as the file is", async () => {
  const label = said(2, `"targetId":"00000001","label":"a ${HALF}"`).replace("message", "label");
  const { server, heard } = serveHalf(LINE, label);
  await server.result("get_tree", { format: "nested" });
  const text = heard();
  expect([text.includes(`"entry":${LINE}`), text.includes(`"label":"a ${ALONE}"`)]).toEqual([true, true]);
});

test("names, refusals and training records have U+FFFD, too, in both dialects", async () => {
  const answer = said(
    2,
    `"message":{"role":"assistant","content":[{"type":"text","text":"cut ${HALF}"}],"timestamp":1}`,
  );
  const named = said(3, `"name":"cut ${HALF}"`).replace("message", "session_info");
  for (const isPi of [true, false]) {
    const { server, heard } = serveHalf(LINE, answer, named);
    const asked = { get_state: {}, export_session: { format: "training" }, get_entry: { entryId: "\ud83d" } };
    for (const [name, params] of Object.entries(asked)) {
      const call = isPi ? { type: name, ...params } : { jsonrpc: "2.0", method: name, params };
      server.input.write(`${JSON.stringify({ id: name, ...call })}\n`);
    }
    await server.finish();
    const replies = heard().trim().split("\n");
    expect(replies.map((reply) => reply.includes(ALONE))).toEqual([true, true, true]);
    expect(replies.join()).not.toContain(HALF);
  }
});
