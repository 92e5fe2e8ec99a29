/**
 * Codex itself lists, reads and resumes what is written for it, without a network. `PI_TEST_CODEX` names its program
 * (of the npm package `@openai/codex`); without it, this is skipped.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { resumable } from "../../src/core/export/agents/resumable.ts";
import { testEnv } from "../support/env.ts";
import { SessionMaker } from "../support/foreign/ours.ts";
import { codexHistory } from "../support/foreign/readers.ts";
import { openText } from "../support/foreign/round-trip.ts";
import { Random } from "../support/random.ts";
import { type Json, temporaryFolder } from "../support/server.ts";

const PROGRAM = process.env.PI_TEST_CODEX;
/** Sessions of each kind. */
const SESSIONS = Number(process.env.PI_TEST_TIMES ?? 5);

/** A provider that answers everything with one word, and keeps what it is asked. */
class Provider {
  readonly requests: Json[] = [];
  private readonly server: Server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      if (!request.url?.endsWith("/responses")) {
        response.writeHead(404).end("{}");
        return;
      }
      this.requests.push(JSON.parse(body));
      const send = (event: Json): void =>
        void response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
      response.writeHead(200, { "content-type": "text/event-stream" });
      send({ type: "response.created", response: { id: "r" } });
      const content = [{ type: "output_text", text: "Yes", annotations: [] }];
      const item = { type: "message", id: "m", role: "assistant", content };
      send({ type: "response.output_item.done", output_index: 0, item });
      const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
      send({ type: "response.completed", response: { id: "r", usage } });
      response.end();
    });
  });

  async listen(): Promise<number> {
    await new Promise<void>((done) => this.server.listen(0, "127.0.0.1", done));
    return (this.server.address() as AddressInfo).port;
  }

  close = (): unknown => this.server.close();
}

/** Codex's app-server: JSON-RPC, a message on each line. */
class AppServer {
  private readonly child: ChildProcess;
  private text = "";
  private asked = 0;
  private last = "";
  private readonly waiting = new Map<number, (message: Json) => void>();
  private readonly turns: (() => void)[] = [];

  constructor(home: string, cwd: string) {
    const env = { ...process.env, CODEX_HOME: home };
    this.child = spawn(PROGRAM as string, ["app-server"], { cwd, env, stdio: ["pipe", "pipe", "ignore"] });
    this.child.stdout?.setEncoding("utf8").on("data", (part) => {
      this.text += part;
      const lines = this.text.split("\n");
      this.text = lines.pop() as string;
      for (const line of lines) this.take(JSON.parse(line));
    });
  }

  private take(message: Json): void {
    if (message.method === "turn/completed") this.turns.shift()?.();
    if (message.method) this.last = JSON.stringify(message).slice(0, 500);
    this.waiting.get(message.id)?.(message);
    this.waiting.delete(message.id);
  }

  async ask(method: string, params: Json): Promise<Json> {
    const id = ++this.asked;
    const reply = new Promise<Json>((done) => this.waiting.set(id, done));
    this.tell({ id, method, params });
    const { result, error } = await reply;
    if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
    return result;
  }

  tell(message: Json): void {
    this.child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  turn(threadId: string): Promise<void> {
    return new Promise((done, fail) => {
      this.turns.push(done);
      setTimeout(() => fail(new Error(`no turn ends in ${threadId}: ${this.last}`)), 60_000).unref();
    });
  }

  close(): void {
    this.child.kill();
  }
}

async function begin() {
  const provider = new Provider();
  const placed: { id: string; asked: string[]; history: Json[] }[] = [];
  const port = await provider.listen();
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
    const file = resumable("codex", session, { leaf: session.tree.leaf, all: false, env: testEnv() });
    const text = [...file.lines()].join("");
    const path = join(home, "sessions", ...(file.parts as string[]));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    const events = text.split("\n").filter((line) => line.includes('"user_message"'));
    const asked = events.map((line) => JSON.parse(line).payload.message);
    // Codex lists no thread in which a person said nothing, and a damaged one may not have its provider on its path.
    if (asked.length > 0 && text.includes('"model_provider":"stub"'))
      placed.push({ id: file.sessionId, asked, history: codexHistory(text) as Json[] });
  }
  const codex = new AppServer(home, cwd);
  onTestFinished(() => {
    provider.close();
    codex.close();
  });
  const clientInfo = { name: "test", title: "test", version: "1" };
  await codex.ask("initialize", { clientInfo, capabilities: { experimentalApi: true } });
  codex.tell({ method: "initialized" });
  return { provider, placed, codex };
}

test.skipIf(!PROGRAM)(
  "Codex lists, reads, resumes and goes on with what was written (PI_TEST_CODEX)",
  { timeout: 300_000 },
  async () => {
    const { provider, placed, codex } = await begin();
    const listed = new Set<string>();
    for (let cursor: string | null = null, page = 0; page < 100; page++) {
      const { data, nextCursor }: Json = await codex.ask("thread/list", { cursor, modelProviders: [] });
      for (const { id } of data) listed.add(id);
      cursor = nextCursor;
      if (cursor === null) break;
    }
    expect(placed.filter(({ id }) => !listed.has(id))).toEqual([]);
    for (const { id: threadId, asked, history } of placed) {
      const { thread } = await codex.ask("thread/read", { threadId, includeTurns: true });
      const read = thread.turns.flatMap(({ items }: Json) => items.filter(({ type }: Json) => type === "userMessage"));
      expect(read.map(({ content }: Json) => content.map(({ text }: Json) => text ?? "").join(""))).toEqual(asked);
      await codex.ask("thread/resume", { threadId });
      const turn = codex.turn(threadId);
      await codex.ask("turn/start", { threadId, input: [{ type: "text", text: "And now?" }] });
      await turn;
      const { input } = provider.requests.at(-1) as Json;
      const wanted = sentOf(history);
      expect(sentOf(input).filter((one) => wanted.includes(one))).toEqual(wanted);
    }
  },
);

/** What is said in items, without their ids and what Codex keeps to itself. */
function sentOf(items: readonly Json[]): string[] {
  return items.map(
    ({ type, role, content, name, arguments: args, call_id: call, output, encrypted_content: encrypted }) =>
      JSON.stringify([type, role, content, name, args, call, output, encrypted]),
  );
}
