/**
 * Codex itself lists, reads and resumes the files written for it, without a network. `PI_TEST_CODEX` names its program
 * (of the npm package `@openai/codex`); without it, this is skipped.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { makeResumableFile } from "../../../src/modules/foreign/write/resumable.ts";
import { Random } from "../../support/random.ts";
import { type Json, temporaryFolder, Wire } from "../../support/server.ts";
import { SessionMaker } from "./support/ours.ts";
import { codexHistory } from "./support/readers.ts";
import { openText } from "./support/round-trip.ts";

const PROGRAM = process.env.PI_TEST_CODEX;
/** Sessions of each kind. */
const SESSIONS = Number(process.env.PI_TEST_TIMES ?? 5);

/** A provider that answers everything with one word, and the requests that it gets. */
async function provider(): Promise<{ port: number; requests: Json[] }> {
  const requests: Json[] = [];
  const server = createServer(async (request, response) => {
    const body = await text(request);
    if (!request.url?.endsWith("/responses")) return void response.writeHead(404).end("{}");
    requests.push(JSON.parse(body));
    const content = [{ type: "output_text", text: "Yes", annotations: [] }];
    const item = { type: "message", id: "m", role: "assistant", content };
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of [
      { type: "response.created", response: { id: "r" } },
      { type: "response.output_item.done", output_index: 0, item },
      { type: "response.completed", response: { id: "r", usage } },
    ])
      response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    response.end();
  });
  onTestFinished(() => void server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { port: (server.address() as AddressInfo).port, requests };
}

/** Waits for the end of the turn that runs. */
async function endOfTurn(codex: Wire): Promise<void> {
  while (!codex.events.splice(0).some(({ method }) => method === "turn/completed"))
    codex.events.push(await codex.next());
}

async function begin() {
  const placed: { id: string; asked: string[]; history: Json[] }[] = [];
  const { port, requests } = await provider();
  const home = temporaryFolder();
  const cwd = temporaryFolder();
  const settings = `model = "a-model"\nmodel_provider = "openai"\napproval_policy = "never"\n`;
  const other = `[model_providers.stub]\nname = "Stub"\nbase_url = "http://127.0.0.1:${port}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n`;
  const trust = `[analytics]\nenabled = false\n[projects."${cwd}"]\ntrust_level = "trusted"\n`;
  writeFileSync(join(home, "config.toml"), settings + other + trust);
  for (let seed = 1; seed <= 2 * SESSIONS; seed++) {
    const random = new Random(seed);
    const maker = new SessionMaker(random, "codex", seed > SESSIONS, {
      id: `01991f6e-1f1d-7c3e-b0a4-${random.hex(12)}`,
      cwd,
      // A thread stays with its provider, which is that of the session if it came from Codex.
      importedFrom: { agent: "codex", id: "x" },
    });
    const data = { type: "session_meta", payload: { model_provider: "stub" } };
    maker.begin("custom", { customType: "import:codex", data });
    const session = openText(maker.make(20).text);
    const file = makeResumableFile("codex", session, { leaf: session.tree.leaf, all: false });
    const written = [...file.lines()].join("");
    const path = join(home, "sessions", ...(file.parts as string[]));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, written);
    const events = written.split("\n").filter((line) => line.includes('"user_message"'));
    const asked = events.map((line) => JSON.parse(line).payload.message);
    // Codex lists no thread without a person's message, and a damaged one may not have its provider on its path.
    if (asked.length > 0 && written.includes('"model_provider":"stub"'))
      placed.push({ id: file.sessionId, asked, history: codexHistory(written) as Json[] });
  }
  const child = spawn(PROGRAM as string, ["app-server"], {
    cwd,
    env: { ...process.env, CODEX_HOME: home },
    stdio: ["pipe", "pipe", "ignore"],
  });
  onTestFinished(() => void child.kill());
  const codex = new Wire(child.stdin, child.stdout, "lines");
  const clientInfo = { name: "test", title: "test", version: "1" };
  await codex.result("initialize", { clientInfo, capabilities: { experimentalApi: true } });
  codex.send({ jsonrpc: "2.0", method: "initialized" });
  return { requests, placed, codex };
}

test.skipIf(!PROGRAM)(
  "Codex lists, reads, resumes and goes on with what was written (PI_TEST_CODEX)",
  { timeout: 300_000 },
  async () => {
    const { requests, placed, codex } = await begin();
    const listed = new Set<string>();
    for (let cursor: string | null = null, page = 0; page < 100; page++) {
      const { data, nextCursor }: Json = await codex.result("thread/list", { cursor, modelProviders: [] });
      for (const { id } of data) listed.add(id);
      cursor = nextCursor;
      if (cursor === null) break;
    }
    expect(placed.filter(({ id }) => !listed.has(id))).toEqual([]);
    for (const { id: threadId, asked, history } of placed) {
      const { thread } = await codex.result("thread/read", { threadId, includeTurns: true });
      const read = thread.turns.flatMap(({ items }: Json) => items.filter(({ type }: Json) => type === "userMessage"));
      expect(read.map(({ content }: Json) => content.map(({ text }: Json) => text ?? "").join(""))).toEqual(asked);
      await codex.result("thread/resume", { threadId });
      await codex.result("turn/start", { threadId, input: [{ type: "text", text: "And now?" }] });
      await endOfTurn(codex);
      const { input } = requests.at(-1) as Json;
      const wanted = sentOf(history);
      expect(sentOf(input).filter((one) => wanted.includes(one))).toEqual(wanted);
    }
  },
);

/** Returns the texts of items, without their ids and without the parts that Codex keeps to itself. */
function sentOf(items: readonly Json[]): string[] {
  return items.map(
    ({ type, role, content, name, arguments: args, call_id: call, output, encrypted_content: encrypted }) =>
      JSON.stringify([type, role, content, name, args, call, output, encrypted]),
  );
}
