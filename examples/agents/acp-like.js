// `node examples/agents/acp-like.js`: an agent that speaks the Agent Client Protocol on stdin and stdout, with a scripted
// model in place of a real one. It keeps nothing: `pi-session-server --agent 'node acp-like.js' --agent-protocol acp`
// records what it says. README.md says what its words do.
import { randomUUID } from "node:crypto";

const say = (message) =>
  new Promise((resolve) => {
    if (process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`)) resolve();
    else process.stdout.once("drain", resolve);
  });

const numberAfter = (text, word, otherwise) => Number(new RegExp(`\\b${word} (\\d+)`).exec(text)?.[1] ?? otherwise);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const sessions = new Map();
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
  const text = blocks.map((block) => block.text ?? "").join("");
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
  const pieces = count > 0 ? Array.from({ length: count }, (_, i) => `${i} `) : ["You said: ", text];
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

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentInfo: { name: "scripted", version: "1.0.0" },
    agentCapabilities: { loadSession: false, _meta: { pid: process.pid } },
    authMethods: [],
  }),
  "session/new": () => {
    const sessionId = randomUUID();
    sessions.set(sessionId, { isCancelled: false });
    return { sessionId };
  },
  "session/prompt": prompt,
};

// What it tells of the past is always the same.
if (process.argv.includes("--loads"))
  METHODS["session/load"] = async ({ sessionId }) => {
    sessions.set(sessionId, { isCancelled: false });
    for (const [kind, text] of [["user_message_chunk", "the past"], ["agent_message_chunk", "as I know it"]])
      await say({
        method: "session/update",
        params: { sessionId, update: { sessionUpdate: kind, content: { type: "text", text } } },
      });
    return {};
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
  await say({ id, result: await run(params) });
}

let unread = "";
process.stdin.setEncoding("utf8").on("data", (text) => {
  const lines = (unread + text).split("\n");
  unread = lines.pop();
  for (const line of lines) if (line.trim() !== "") void handle(line);
});
process.stdin.on("end", () => process.exit(0));
