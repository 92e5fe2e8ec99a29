// `node examples/agents/acp-like.js`: an agent that speaks the Agent Client Protocol on stdin and stdout, with a scripted
// model in place of a real one. It keeps nothing: `pi-session-server --agent 'node acp-like.js' --agent-protocol acp`
// keeps what it says. README.md says what its words do.
import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const say = (message) =>
  new Promise((resolve) => {
    if (process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)) resolve();
    else process.stdout.once("drain", resolve);
  });

const numberAfter = (text, word, otherwise) => Number(new RegExp(`\\b${word} (\\d+)`).exec(text)?.[1] ?? otherwise);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const sessions = new Map();
const has = (option) => process.argv.includes(option);
/** The file in which the prompts of each session are kept; without one, an agent knows only what it has heard itself. */
const kept = has("--keep") ? process.argv[process.argv.indexOf("--keep") + 1] : undefined;
if (kept && existsSync(kept))
  for (const [id, heard] of Object.entries(JSON.parse(readFileSync(kept, "utf8")))) sessions.set(id, { isCancelled: false, heard });
const keep = () =>
  kept && writeFileSync(kept, JSON.stringify(Object.fromEntries([...sessions].map(([id, { heard }]) => [id, heard]))));
const asked = new Map();
let questions = 0;

/** Asks the client, and waits for its answer. */
function ask(method, params) {
  const id = `question-${++questions}`;
  const answered = new Promise((resolve) => asked.set(id, resolve));
  void say({ id, method, params });
  return answered;
}

async function prompt({ sessionId, prompt: blocks }) {
  const session = sessions.get(sessionId);
  session.isCancelled = false;
  // What comes before the last block, such as an earlier conversation, is heard and not done.
  const text = blocks.findLast((block) => block.type === "text")?.text ?? "";
  session.heard.push(blocks.map((block) => block.text ?? "").join(""));
  keep();
  const update = (told) => say({ method: "session/update", params: { sessionId, update: told } });
  const chunk = (kind, piece) => update({ sessionUpdate: kind, content: { type: "text", text: piece } });
  if (/\bthink\b/.test(text)) await chunk("agent_thought_chunk", "Let me think.");
  for (let i = numberAfter(text, "tools", 0); i > 0; i--) {
    await chunk("agent_message_chunk", `Reading ${i}. `);
    const toolCallId = `call-${randomUUID()}`;
    const call = { toolCallId, title: `Read file-${i}`, name: "read", kind: "read" };
    await update({ sessionUpdate: "tool_call", ...call, status: "pending", rawInput: { path: `file-${i}` } });
    if (/\bask\b/.test(text)) {
      const options = [{ optionId: "yes", name: "Yes", kind: "allow_once" }];
      await ask("session/request_permission", { sessionId, toolCall: call, options });
    }
    await update({ sessionUpdate: "tool_call_update", toolCallId, status: "in_progress" });
    const content = [{ type: "content", content: { type: "text", text: `file ${i}` } }];
    await update({ sessionUpdate: "tool_call_update", toolCallId, status: "completed", content });
  }
  const count = numberAfter(text, "chunks", 0);
  const pieces = count > 0 ? Array.from({ length: count }, (_, i) => `${i} `) : /\brecall\b/.test(text) ? [session.heard.join(" | ")] : ["You said: ", text];
  for (const [index, piece] of pieces.entries()) {
    if (session.isCancelled) return { stopReason: "cancelled" };
    await chunk("agent_message_chunk", piece);
    if (/\bdie\b/.test(text) && index + 1 === numberAfter(text, "after", 0)) process.kill(process.pid, "SIGKILL");
    const wait = numberAfter(text, "every", 0);
    if (wait > 0) await pause(wait);
  }
  await update({ sessionUpdate: "plan", entries: [{ content: text.slice(0, 40), priority: "low", status: "completed" }] });
  const usage = { inputTokens: 10, outputTokens: pieces.length, totalTokens: 10 + pieces.length };
  return { stopReason: "end_turn", usage };
}

const told = (sessionId, update) => say({ method: "session/update", params: { sessionId, update } });
const modes = {
  currentModeId: "ask",
  availableModes: [
    { id: "ask", name: "Ask" },
    { id: "code", name: "Code" },
  ],
};

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentInfo: { name: "scripted", version: "1.0.0" },
    agentCapabilities: {
      loadSession: has("--loads"),
      promptCapabilities: { image: true, embeddedContext: true },
      sessionCapabilities: { ...(has("--resumes") ? { resume: {} } : {}), ...(has("--forks") ? { fork: {} } : {}) },
      _meta: { pid: process.pid },
    },
    authMethods: [],
  }),
  "session/new": () => {
    const sessionId = randomUUID();
    sessions.set(sessionId, { isCancelled: false, heard: [] });
    const availableCommands = [{ name: "recall", description: `process ${process.pid}` }];
    if (has("--commands")) setImmediate(() => told(sessionId, { sessionUpdate: "available_commands_update", availableCommands }));
    return { sessionId, modes };
  },
  "session/set_mode": async ({ sessionId, modeId }) => {
    await told(sessionId, { sessionUpdate: "current_mode_update", currentModeId: modeId });
    return {};
  },
  "session/prompt": prompt,
};

// What it tells of the past is always the same.
if (has("--loads"))
  METHODS["session/load"] = async ({ sessionId }) => {
    if (!sessions.has(sessionId)) sessions.set(sessionId, { isCancelled: false, heard: [] });
    for (const [kind, text] of [["user_message_chunk", "the past"], ["agent_message_chunk", "as I know it"]])
      await say({
        method: "session/update",
        params: { sessionId, update: { sessionUpdate: kind, content: { type: "text", text } } },
      });
    return {};
  };

if (has("--resumes")) METHODS["session/resume"] = ({ sessionId }) => (sessions.has(sessionId) ? { modes } : undefined);
if (has("--forks"))
  METHODS["session/fork"] = ({ sessionId }) => {
    const copy = randomUUID();
    sessions.set(copy, { isCancelled: false, heard: [...(sessions.get(sessionId)?.heard ?? [])] });
    return { sessionId: copy };
  };

async function handle(line) {
  const { id, method, params, result } = JSON.parse(line);
  if (method === undefined) return asked.get(id)?.(result);
  if (method === "session/cancel") {
    const session = sessions.get(params.sessionId);
    if (session) session.isCancelled = true;
    return;
  }
  if (id === undefined) return;
  const run = Object.hasOwn(METHODS, method) ? METHODS[method] : undefined;
  if (!run) return say({ id, error: { code: -32601, message: `Unknown method: ${method}` } });
  if (method === "session/prompt" && !sessions.has(params.sessionId))
    return say({ id, error: { code: -32002, message: "No such session" } });
  const done = await run(params);
  await say(done ? { id, result: done } : { id, error: { code: -32002, message: "No such session" } });
}

let unread = "";
process.stdin.setEncoding("utf8").on("data", (text) => {
  const lines = (unread + text).split("\n");
  unread = lines.pop();
  for (const line of lines) if (line.trim() !== "") void handle(line);
});
process.stdin.on("end", () => process.exit(0));
