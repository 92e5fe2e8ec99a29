// `node examples/agent.js`: a whole coding agent on top of the server, with a scripted model instead of a real one.
// It keeps no history of its own: what the model sees is always asked for, what happened is always appended.
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, isolatedEnvironment } from "./client.js";

// --- the model and its tools -----------------------------------------------------------------------------------------

/** What the model says, answer by answer. A string is text, an array is a call of a tool with its arguments. */
const SCRIPT = [
  ["read", { path: "notes.md" }],
  "It is a list of twelve notes. What shall I do with them?",
  ["read", { path: "search.js" }],
  ["edit", { path: "search.js", text: "export const search = () => {};\n" }],
  "search.js finds notes by their words now.",
  "It is fast enough: there are twelve notes.",
  "Tags it is. I would write them as #words inside of a note.",
  ["edit", { path: "tags.js", text: "export const tags = () => {};\n" }],
  "tags.js lists the tags of a note.",
];

/** A model would get the messages over the network; this one only counts them. */
class ScriptedModel {
  #next = 0;

  answer(messages) {
    const line = SCRIPT[this.#next++];
    const isCall = Array.isArray(line);
    const content = isCall
      ? [{ type: "toolCall", id: `call_${this.#next}`, name: line[0], arguments: line[1] }]
      : [{ type: "text", text: line }];
    const input = Math.ceil(JSON.stringify(messages).length / 4);
    return {
      role: "assistant",
      content,
      api: "scripted",
      provider: "example",
      model: "scripted-1",
      stopReason: isCall ? "toolUse" : "stop",
      usage: {
        input,
        output: 20,
        cacheRead: 0,
        cacheWrite: 0,
        totalTokens: input + 20,
        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
      },
      timestamp: Date.now(),
    };
  }

  /** What a real model would be asked for with `text` and `previous` in its prompt. */
  summarise(text, previous) {
    const asked = text.split("\n\n").filter((paragraph) => paragraph.startsWith("User: "));
    const sentences = asked.map((paragraph) => `The user asked: ${paragraph.slice("User: ".length)}`);
    return [previous, ...sentences].filter(Boolean).join("\n") || "Nothing of note.";
  }
}

/** The files the agent works on. */
const project = new Map([
  ["notes.md", "- buy bread and write down where\n".repeat(50)],
  ["search.js", "// to do: search the notes\n".repeat(50)],
]);

const tools = {
  read: ({ path }) => project.get(path) ?? `There is no ${path}.`,
  edit: ({ path, text }) => {
    project.set(path, text);
    return `${path} is written.`;
  },
};

// --- the agent ---------------------------------------------------------------------------------------------------------

/** The window of the scripted model, in tokens: small, so that the example gets to a compaction. */
const WINDOW = { contextWindow: 900, reserveTokens: 200, keepRecentTokens: 100 };

class Agent {
  /** Whether it is in the middle of something, so that its session may not be changed under it. */
  busy = false;
  #model = new ScriptedModel();
  #server;

  /** Starts a server; `args` say with which session. */
  async start(args, folder) {
    this.#server = new Client(args, {
      env: isolatedEnvironment(folder),
      cwd: folder,
      // The server asks before it forks. A fork of half a turn would be of no use, so the agent refuses it.
      onHook: (name) => ({ cancel: name === "session_before_fork" && this.busy }),
    });
    const hooks = [{ name: "session_before_fork" }];
    await this.ask("initialize", { clientInfo: { name: "example-agent" }, capabilities: { hooks, events: [] } });
    return this.ask("get_state");
  }

  ask(method, params) {
    return this.#server.request(method, params);
  }

  /** A turn: the question, then answers and tool results until the model has said what it has to say. */
  async prompt(text) {
    this.busy = true;
    await this.append([{ role: "user", content: text, timestamp: Date.now() }]);
    await this.goOn();
    this.busy = false;
    await this.compactIfDue();
  }

  /** Lets the model answer until it calls no tool any more. */
  async goOn() {
    for (;;) {
      // `strict`: whatever happened to the session, each call has its result, which providers insist on.
      const { messages } = await this.ask("get_context", { strict: true });
      const answer = this.#model.answer(messages);
      await this.append([answer]);
      const calls = answer.content.filter(({ type }) => type === "toolCall");
      if (calls.length === 0) return;
      await this.append(calls.map((call) => this.run(call)));
    }
  }

  run({ id, name, arguments: args }) {
    const content = [{ type: "text", text: tools[name](args) }];
    return { role: "toolResult", toolCallId: id, toolName: name, content, isError: false, timestamp: Date.now() };
  }

  /**
   * With a key a repetition writes nothing twice, even if the reply was lost and the server is a new one. The key is random:
   * one that a later run makes again would get the answer of this run, and the message of then would not be stored.
   */
  async append(messages, idempotencyKey = randomUUID()) {
    const entries = messages.map((message) => ({ type: "message", message }));
    return this.ask("append", { entries, idempotencyKey });
  }

  /** The server knows where to cut and what was said; the model says it shorter; the server keeps that. */
  async compactIfDue() {
    const plan = await this.ask("prepare_compaction", WINDOW);
    if (!plan.shouldCompact || plan.conversationText === "") return;
    const { firstKeptEntryId, tokensBefore, details } = plan;
    const summary = this.#model.summarise(plan.conversationText, plan.previousSummary);
    await this.ask("compact_append", { summary, firstKeptEntryId, tokensBefore, details });
    const { contextTokens } = await this.ask("prepare_compaction", WINDOW);
    tell(`compacted: ${tokensBefore} tokens became ${contextTokens}; files: ${JSON.stringify(details)}`);
  }

  /** Goes back to before a message of the user. What is left behind is told to the model in a summary. */
  async goBackTo(entryId) {
    const { entry } = await this.ask("get_entry", { entryId });
    const left = await this.ask("prepare_branch_summary", { targetId: entry.parentId });
    const summary = { summary: this.#model.summarise(left.conversationText), details: left.details };
    return this.ask("branch", { entryId, position: "before", summary, label: "another way" });
  }

  /** Dies as a machine does that loses power in the middle of a call. */
  async dieInTheMiddle(text) {
    this.busy = true;
    await this.append([{ role: "user", content: text, timestamp: Date.now() }]);
    const { messages } = await this.ask("get_context", { strict: true });
    const answer = this.#model.answer(messages);
    const key = "the last append before the end";
    const { entryIds } = await this.append([answer], key);
    this.#server.kill();
    await this.#server.ended;
    return { answer, key, entryIds };
  }

  async end() {
    return this.#server.close();
  }
}

// --- its life ----------------------------------------------------------------------------------------------------------

const checks = [];
const check = (sentence, holds) => checks.push({ sentence, holds });
const tell = (text) => process.stdout.write(`   ${text}\n`);
const heading = (text) => process.stdout.write(`\n${text}\n`);

const rolesOf = (messages) => messages.map(({ role }) => role).join(", ");

async function live(folder) {
  const agent = new Agent();

  heading("Two turns with tools, then a compaction, because the window is full");
  const { sessionFile } = await agent.start([], folder);
  await agent.prompt("What is in notes.md?");
  await agent.prompt("Make search.js find notes by their words.");
  const compacted = await agent.ask("get_messages");
  tell(`the model sees: ${rolesOf(compacted.messages)}`);
  check("the context begins with a summary", compacted.messages[0].role === "compactionSummary");
  await agent.prompt("Is that fast enough?");

  heading("Back to the second question, the way taken so far in a summary");
  const { messages: questions } = await agent.ask("get_fork_messages", { scope: "path" });
  const second = questions[1];
  const back = await agent.goBackTo(second.entryId);
  tell(`the editor shows: ${back.text}`);
  check("the text of the question comes back", back.text === second.text);
  await agent.prompt("Give the notes tags instead of a search.");
  const { messages } = await agent.ask("get_context", { strict: true });
  tell(`the model sees: ${rolesOf(messages)}`);
  check(
    "the model is told of the other branch",
    messages.some(({ role }) => role === "branchSummary"),
  );

  heading("A fork that the agent refuses, and one that it allows");
  agent.busy = true;
  const refused = await agent.ask("fork", { entryId: questions[0].entryId });
  agent.busy = false;
  check("a refused fork changes nothing", refused.cancelled && refused.sessionFile === sessionFile);
  const { leafId } = await agent.ask("get_state");
  const fork = await agent.ask("fork", { entryId: leafId, position: "at" });
  tell(`the fork is ${fork.sessionFile === sessionFile ? "missing" : "a file of its own"}`);
  check("the fork is the current session", (await agent.ask("get_state")).sessionFile === fork.sessionFile);

  heading("Killed in the middle of a call, and on from there");
  const { answer, key, entryIds } = await agent.dieInTheMiddle("Write tags.js.");
  const state = await agent.start(["--session", fork.sessionFile], folder);
  const dangling = state.diagnostics.filter(({ kind }) => kind === "dangling_tool_call");
  for (const { reason } of dangling) tell(reason);
  check("the call without a result is named", dangling.length === 1);
  const repeated = await agent.append([answer], key);
  check("what was sent twice is there once", repeated.entryIds.join() === entryIds.join());
  // The tool can be run again. If it could not: repair_session appends an error result for each such call.
  await agent.append(answer.content.map((call) => agent.run(call)));
  await agent.goOn();
  const { text } = await agent.ask("get_last_assistant_text");
  tell(`the model says: ${text}`);
  check("the turn came to its end", text === SCRIPT.at(-1));
  check("nothing is left to mend", (await agent.ask("get_state")).diagnostics.length === 0);

  heading("What it cost");
  const stats = await agent.ask("get_session_stats");
  tell(`${stats.own.tokens.total} tokens in the fork, ${stats.inherited.tokens.total} before it`);
  check("the fork pays for its own turn only", stats.own.tokens.total > 0 && stats.inherited.tokens.total > 0);
  check("the server ends with status 0", (await agent.end()) === 0);
}

const folder = mkdtempSync(join(tmpdir(), "pi-session-server-agent-"));
try {
  await live(folder);
  heading("Checks");
  for (const { sentence, holds } of checks) tell(`${holds ? "ok" : "FAILED"}: ${sentence}`);
  process.exitCode = checks.every(({ holds }) => holds) ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
