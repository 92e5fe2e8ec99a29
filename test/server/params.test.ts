/** The sentence for each kind of wrong params: which member, and what belongs there. */

import { expect, test } from "vitest";
import { type Json, serveHere } from "../support/server.ts";

const BLOCKS = 'text or a list of blocks such as {"type":"text","text":"..."}';

function message(content: Json): Json {
  return { entries: [{ type: "message", message: { role: "user", content } }] };
}

const entry = (value: Json): Json => ({ entries: [value] });

test.each<[string, Json, string]>([
  ["get_entry", {}, "entryId is missing (a string)"],
  ["get_entry", { entryId: 5 }, "entryId must be a string, not a number"],
  ["get_entry", { entryId: ["x"] }, "entryId must be a string, not a list"],
  ["get_entry", { entryID: "x" }, "entryId is missing (a string); entryID: no such member"],
  ["append", {}, "entries is missing (a list)"],
  ["append", { entries: {} }, "entries must be a list, not an object"],
  ["append", { entries: ["x"] }, "entries.0 must be an object, not a string"],
  ["fork", { entryId: "x", position: "after" }, 'position must be "before" or "at"'],
  ["get_state", { _meta: { progressToken: {} } }, "_meta.progressToken must be a string or a number"],
  ["append", message(null), `entries.0.message.content must be ${BLOCKS}`],
  ["append", message(["x"]), `entries.0.message.content must be ${BLOCKS}`],
  ["append", entry({ type: "custom_message", customType: "x" }), `entries.0.content is missing; it is ${BLOCKS}`],
  ["append", { entries: [{ type: "message" }] }, "entries.0.message is missing (an object)"],
  ["append", entry({ type: "message", role: "user" }), "entries.0.message is missing; put role and content"],
  ["append", entry({ role: "user", content: "x" }), "entries.0.type is missing; a message is"],
  ["append", { entries: [{ type: "compaction", summary: "x" }] }, "entries.0.firstKeptEntryId is missing (a string)"],
  ["initialize", { protocolVersion: 0 }, "protocolVersion: this server speaks version 1;"],
  ["initialize", { protocolVersion: 1.5 }, "protocolVersion: this server speaks version 1;"],
  ["append", { entries: [] }, "entries must not be empty"],
  ["list_sessions", { limit: 0 }, "limit must be 1 or more"],
  ["initialize", { maxReplyBytes: 5 }, "maxReplyBytes must be 1024 or more"],
  ["new_session", { cwd: "" }, "cwd must not be empty"],
  ["new_session", { cwd: "project" }, "cwd must be an absolute path"],
  ["new_session", { parentSession: "/a\0" }, "parentSession must have no NUL"],
  ["new_session", { cwd: "/home/a\0b" }, "cwd must have no NUL"],
  ["branch", {}, "entryId is missing (a string or null)"],
  ["branch", { entryId: "a", targetId: "b" }, "targetId must be the same as entryId"],
  ["prepare_branch_summary", { entryId: "a", targetId: null }, "entryId must be the same as targetId"],
  ["search_sessions", { query: "x", in: [] }, "in must not be empty"],
])("%s %j is refused with what belongs there", async (method, params, sentence) => {
  const server = serveHere(["--events", "none"]);
  const { code, message } = await server.failure(method, params);
  expect(code).toBe(-32602);
  expect(message).toContain(sentence);
  expect(message).not.toContain("Invalid input");
});
