/**
 * A real agent asks: Claude Code, with the registration that `mcp install` prints, and a model that follows a script.
 *
 * @module-tag sweep
 */

import { execFile, execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { PROGRAM } from "../../support/build.ts";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { findProgram, need, needs } from "../../support/needs.ts";
import { chain, put } from "../../support/searching.ts";
import { type Json, programEnvironment, runProgram, temporaryPlace } from "../../support/server.ts";

const CLAUDE = need(
  "Claude Code",
  "npm install -g @anthropic-ai/claude-code",
  () => findProgram("claude") !== undefined,
);

/** The script: the model searches, opens the first hit's context, misuses a param, and says what it saw. */
function decide(results: readonly string[]): Json {
  const ref = /^1\. (\w+#\w+)/m.exec(results[0] ?? "")?.[1];
  const calls = [
    ["find", { query: "why no redis for profiles" }],
    ["open", { ref, view: "context" }],
    ["tree", { session: ref }],
  ] as const;
  const next = calls[results.length];
  return next ? { name: `mcp__sessions__${next[0]}`, input: next[1] } : { text: `It was decided in ${ref}.` };
}

/** Serves Anthropic's Messages API. Each request that has our tools is noted with the results in it. */
async function serveModel() {
  const asked: { tools: string[]; results: string[]; failed: number }[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const { messages = [], tools = [], stream } = JSON.parse(body || "{}");
    const names: string[] = tools.map(({ name }: Json) => name);
    const blocks: Json[] = messages.flatMap(({ content }: Json) => (Array.isArray(content) ? content : []));
    const given = blocks.filter(({ type }) => type === "tool_result");
    const results = given.map(({ content }) =>
      typeof content === "string" ? content : content.map(({ text }: Json) => text).join(""),
    );
    const ours = names.filter((name) => name.startsWith("mcp__sessions__"));
    if (ours.length > 0) asked.push({ tools: ours, results, failed: given.filter((one) => one.is_error).length });
    const said = ours.length > 0 ? decide(results) : { text: "A title" };
    const block =
      said.text === undefined
        ? { type: "tool_use", id: `toolu_${results.length}`, ...said }
        : { type: "text", ...said };
    const stop_reason = said.text === undefined ? "tool_use" : "end_turn";
    const message = {
      ...{ id: "msg_1", type: "message", role: "assistant", model: "scripted", stop_sequence: null },
      usage: { input_tokens: 1, output_tokens: 1 },
    };
    if (!stream) {
      response.end(JSON.stringify({ ...message, content: [block], stop_reason }));
      return;
    }
    const delta =
      said.text === undefined
        ? { type: "input_json_delta", partial_json: JSON.stringify(said.input) }
        : { type: "text_delta", text: said.text };
    const empty = said.text === undefined ? { ...block, input: {} } : { ...block, text: "" };
    const events = [
      { type: "message_start", message: { ...message, content: [], stop_reason: null } },
      { type: "content_block_start", index: 0, content_block: empty },
      { type: "content_block_delta", index: 0, delta },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ];
    response.setHeader("content-type", "text/event-stream");
    response.end(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(""));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  onTestFinished(() => void server.close());
  return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

test("Claude Code asks, follows a reference, and its model gets the exact context", { ...needs(CLAUDE) }, async () => {
  const place = temporaryPlace();
  const before = [user("Why redis?"), toolCall("c1"), toolResult("c1", "cache: memory"), assistant("It pings.")];
  put(place, "01aaaaaa-1111", chain(...before, user("No redis for profiles, please."), assistant("Done.")));
  const bin = join(place.home, "bin");
  mkdirSync(bin);
  writeFileSync(join(bin, "pi-session-server"), `#!/bin/sh\nexec "${process.execPath}" "${PROGRAM}" "$@"\n`);
  chmodSync(join(bin, "pi-session-server"), 0o755);
  const { asked, url } = await serveModel();
  const env = {
    ...programEnvironment(place),
    PATH: [bin, process.env.PATH].join(delimiter),
    ...{ ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "scripted", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" },
  };
  const { stdout: printed } = await runProgram("", ["mcp", "install", "claude"], place);
  const registration = /^claude mcp add .*$/m.exec(printed)?.[0] as string;
  execFileSync("sh", ["-c", registration], { cwd: place.cwd, env });
  const tools = ["find", "open", "tree"].map((name) => `mcp__sessions__${name}`);
  const words = ["-p", "What did we decide about redis?", "--allowedTools", tools.join(",")];
  const answer = await new Promise((done, fail) => {
    const agent = execFile("claude", words, { cwd: place.cwd, env }, (error, out) => (error ? fail(error) : done(out)));
    agent.stdin?.end();
  });
  expect(asked[0]?.tools).toEqual(expect.arrayContaining(tools));
  const { results, failed } = asked.at(-1) as (typeof asked)[number];
  const [found, context, mistaken] = results;
  expect(found).toContain("left out: this session");
  expect(found).toContain("No redis for profiles, please.");
  expect(context).toContain("cache: memory");
  expect(mistaken).toBe("There is no param session. Params: ref, scope, max_tokens.");
  expect(failed).toBe(1);
  expect(answer).toMatch(/^It was decided in 01aaaaaa#\w+\.\n$/);
});
