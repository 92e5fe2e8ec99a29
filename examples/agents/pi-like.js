// `node examples/agents/pi-like.js`: an agent that speaks Pi's RPC dialect on stdin and stdout, with a scripted model
// in place of a real one. It writes its session file itself, as Pi does: this is the agent that
// `pi-session-server --mode rpc --agent 'node pi-like.js'` has behind it. README.md says what its words do.
import { randomBytes } from "node:crypto";
import { appendFileSync, existsSync, readFileSync } from "node:fs";

const MODEL = {
  id: "scripted-1",
  name: "Scripted",
  api: "scripted",
  provider: "example",
  baseUrl: "",
  reasoning: false,
  input: ["text"],
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  contextWindow: 100_000,
  maxTokens: 4096,
};

/** A model that thinks. */
const THINKER = {
  ...MODEL,
  id: "scripted-2",
  name: "Scripted, thinking",
  reasoning: true,
};
const MODELS = [MODEL, THINKER];
const LEVELS = ["off", "low", "high"];
/** The version of Pi whose dialect this is. */
const LIKE = "1.5.2";
const sourceInfo = { path: process.argv[1], source: "example", scope: "user", origin: "top-level" };
const GREET = { name: "greet", description: `process ${process.pid}`, source: "prompt", sourceInfo };

/** Some of the words in a message make the agent do something; `chunks 100` makes an answer of a hundred pieces. */
const numberAfter = (text, word, otherwise) => Number(new RegExp(`\\b${word} (\\d+)`).exec(text)?.[1] ?? otherwise);

// --- the session file ------------------------------------------------------------------------------------------------

class SessionFile {
  path;
  leaf = null;
  messages = [];

  open(path) {
    this.path = path;
    this.leaf = null;
    const byId = new Map();
    for (const line of existsSync(path) ? readFileSync(path, "utf8").split("\n") : []) {
      if (line === "") continue;
      const entry = JSON.parse(line);
      if (entry.type === "session") continue;
      byId.set(entry.id, entry);
      // The last line is where the conversation goes on.
      this.leaf = entry.id;
    }
    this.messages = [];
    for (let at = byId.get(this.leaf); at; at = byId.get(at.parentId))
      if (at.type === "message") this.messages.unshift(at.message);
  }

  append(type, rest) {
    const entry = {
      type,
      id: randomBytes(4).toString("hex"),
      parentId: this.leaf,
      timestamp: new Date().toISOString(),
      ...rest,
    };
    this.leaf = entry.id;
    if (type === "message") this.messages.push(rest.message);
    if (this.path) appendFileSync(this.path, `${JSON.stringify(entry)}\n`);
  }
}

const file = new SessionFile();
const state = { isStreaming: false, isCompacting: false, thinkingLevel: "off", name: undefined };
let model = MODEL;
let aborted = false;
let wake = () => {};

// --- the wire --------------------------------------------------------------------------------------------------------

/** What is said; resolves when it may go on, because somebody reads. */
const say = (message) =>
  new Promise((resolve) => {
    if (process.stdout.write(`${JSON.stringify(message)}\n`)) resolve();
    else process.stdout.once("drain", resolve);
  });

const answer = ({ id, type }, data) =>
  say({ ...(id === undefined ? {} : { id }), type: "response", command: type, success: true, ...(data === undefined ? {} : { data }) });
const refuse = ({ id, type }, error) =>
  say({ ...(id === undefined ? {} : { id }), type: "response", command: type, success: false, error });

const pause = (milliseconds) =>
  new Promise((resolve) => {
    wake = resolve;
    setTimeout(resolve, milliseconds);
  });

// --- a turn ----------------------------------------------------------------------------------------------------------

const usage = (output) => ({
  ...{ input: 10, output, cacheRead: 0, cacheWrite: 0, totalTokens: 10 + output },
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
});

const begun = () => ({
  ...{ role: "assistant", content: [], api: model.api, provider: model.provider, model: model.id },
  ...{ usage: usage(0), stopReason: "stop", timestamp: Date.now() },
});

/** Tells of a message that is whole, and writes it. */
async function finish(message) {
  await say({ type: "message_end", message });
  file.append("message", { message });
}

async function speak(pieces, { wait, after, thought, error }) {
  const message = begun();
  await say({ type: "message_start", message });
  let text = "";
  const at = thought ? 1 : 0;
  if (thought)
    await say({ type: "message_update", assistantMessageEvent: { type: "thinking_delta", contentIndex: 0, delta: thought } });
  for (const [index, delta] of pieces.entries()) {
    if (aborted) break;
    text += delta;
    // Only what has come is told, as Pi does since 0.84.
    await say({ type: "message_update", assistantMessageEvent: { type: "text_delta", contentIndex: at, delta } });
    if (index + 1 === after) await dieOrHang(after);
    if (wait > 0) await pause(wait);
  }
  message.content = [...(thought ? [{ type: "thinking", thinking: thought }] : []), { type: "text", text }];
  message.usage = usage(pieces.length);
  if (error) Object.assign(message, { stopReason: "error", errorMessage: error });
  if (aborted) message.stopReason = "aborted";
  await finish(message);
  return message;
}

let fate = () => {};
const dieOrHang = async () => fate();

async function useTool(name, args, result, details) {
  const message = begun();
  const call = { type: "toolCall", id: `call_${randomBytes(4).toString("hex")}`, name, arguments: args };
  message.content = [call];
  message.stopReason = "toolUse";
  await say({ type: "message_start", message: { ...message, content: [] } });
  await finish(message);
  await say({ type: "tool_execution_start", toolCallId: call.id, toolName: name, args });
  const content = [{ type: "text", text: result }];
  const outcome = details ? { content, details } : { content };
  await say({ type: "tool_execution_update", toolCallId: call.id, toolName: name, args, partialResult: { content } });
  await say({ type: "tool_execution_end", toolCallId: call.id, toolName: name, result: outcome, isError: false });
  const about = { toolCallId: call.id, toolName: name };
  const toolResult = { role: "toolResult", ...about, ...outcome, isError: false, timestamp: Date.now() };
  await say({ type: "message_start", message: toolResult });
  await finish(toolResult);
}

async function turn(text, images) {
  aborted = false;
  state.isStreaming = true;
  await say({ type: "agent_start" });
  await say({ type: "turn_start" });
  const content = [{ type: "text", text }, ...(images ?? [])];
  const user = { role: "user", content, timestamp: Date.now() };
  await say({ type: "message_start", message: user });
  await finish(user);
  if (/\bask\b/.test(text)) await ask({ method: "confirm", title: "Go on?", message: "The agent asks." });
  let chosen = "";
  if (/\bchoose\b/.test(text))
    chosen = `${(await ask({ method: "select", title: "Which?", options: ["This one", "No, that one"] })).value} `;
  if (/\bwrite\b/.test(text)) chosen = `${(await ask({ method: "input", title: "Name?" })).value ?? "nothing"} `;
  if (/\bedit\b/.test(text))
    await useTool("edit", { path: "a.txt", oldText: "old", newText: "new" }, "Changed a.txt", { diff: "-old\n+new" });
  for (let i = numberAfter(text, "tools", 0); i > 0 && !aborted; i--) await useTool("read", { path: `file-${i}` }, `file ${i}`);
  const count = numberAfter(text, "chunks", 0);
  const pieces = count > 0 ? Array.from({ length: count }, (_, i) => `${i} `) : [`You said: `, ...(chosen ? [chosen] : []), text];
  const giant = numberAfter(text, "giant", 0);
  if (giant > 0) pieces.push("x".repeat(giant));
  fate = fateIn(text);
  const thought = /\bthink\b/.test(text) ? "Let me think." : undefined;
  const error = /\bfail\b/.test(text) ? "The model is tired." : undefined;
  const how = { wait: numberAfter(text, "every", 0), after: numberAfter(text, "after", 0), thought, error };
  const message = await speak(pieces, how);
  await say({ type: "turn_end", message, toolResults: [] });
  state.isStreaming = false;
  await say({ type: "agent_end", messages: [user, message] });
  await say({ type: "agent_settled" });
}

/** What a message says is to happen in the middle of the answer, `after` so many pieces. */
function fateIn(text) {
  if (/\bdie\b/.test(text)) return () => process.kill(process.pid, "SIGKILL");
  if (/\bhang\b/.test(text)) return () => new Promise(() => setInterval(() => {}, 1 << 30));
  return () => {};
}

/** Asks the person at the client, and waits for the answer. */
const questions = new Map();
async function ask(request) {
  const id = randomBytes(8).toString("hex");
  const answered = new Promise((resolve) => questions.set(id, resolve));
  await say({ type: "extension_ui_request", id, ...request });
  return answered;
}

// --- commands --------------------------------------------------------------------------------------------------------

const COMMANDS = {
  async prompt(command) {
    if (state.isStreaming) return refuse(command, "The agent is at work. Say steer or follow_up.");
    // A command of an extension, which begins no turn.
    if (command.message === "/greet") return answer(command, { disposition: "handled" });
    await answer(command);
    await turn(command.message, command.images);
  },
  steer: (command) => answer(command),
  follow_up: (command) => answer(command),
  async abort(command) {
    aborted = true;
    wake();
    for (const answered of questions.values()) answered({ cancelled: true });
    while (state.isStreaming) await new Promise(setImmediate);
    await answer(command);
  },
  abort_bash: (command) => answer(command),
  abort_retry: (command) => answer(command),
  async bash(command) {
    const output = `ran ${command.command}\n`;
    const message = { role: "bashExecution", command: command.command, output, exitCode: 0, timestamp: Date.now() };
    file.append("message", { message: { ...message, cancelled: false, truncated: false } });
    await answer(command, { output, exitCode: 0, cancelled: false, truncated: false });
  },
  get_state: (command) =>
    answer(command, {
      ...{ model, thinkingLevel: state.thinkingLevel, isStreaming: state.isStreaming, isCompacting: state.isCompacting },
      ...{ steeringMode: "one-at-a-time", followUpMode: "one-at-a-time", sessionFile: file.path, sessionId: "scripted" },
      ...{ autoCompactionEnabled: true, messageCount: file.messages.length, pendingMessageCount: 0 },
    }),
  get_available_thinking_levels: (command) => answer(command, { levels: model.reasoning ? LEVELS : ["off"] }),
  get_available_models: (command) => answer(command, { models: MODELS }),
  get_commands: (command) => answer(command, { commands: [GREET] }),
  async set_model(command) {
    const found = MODELS.find(({ id }) => id === command.modelId);
    if (!found) return refuse(command, `Model not found: ${command.provider}/${command.modelId}`);
    model = found;
    file.append("model_change", { provider: command.provider, modelId: command.modelId });
    await answer(command, model);
  },
  async cycle_model(command) {
    model = MODELS[(MODELS.indexOf(model) + 1) % MODELS.length];
    file.append("model_change", { provider: model.provider, modelId: model.id });
    await answer(command, { model, thinkingLevel: state.thinkingLevel, isScoped: false });
  },
  async set_thinking_level(command) {
    state.thinkingLevel = command.level;
    file.append("thinking_level_change", { thinkingLevel: command.level });
    await answer(command);
  },
  async set_session_name(command) {
    file.append("session_info", { name: command.name });
    await answer(command);
  },
  async switch_session(command) {
    aborted = true;
    wake();
    while (state.isStreaming) await new Promise(setImmediate);
    file.open(command.sessionPath);
    await answer(command, { cancelled: false });
  },
};

async function handle(line) {
  let command;
  try {
    command = JSON.parse(line);
  } catch (error) {
    return say({ type: "response", command: "parse", success: false, error: error.message });
  }
  if (command.type === "extension_ui_response") return questions.get(command.id)?.(command);
  const run = Object.hasOwn(COMMANDS, command.type) ? COMMANDS[command.type] : undefined;
  return run ? run(command) : refuse(command, `Unknown command: ${command.type}`);
}

if (process.argv.includes("--version")) {
  console.log(LIKE);
  process.exit();
}
// What an agent may do that is out of order: heed neither the end of its input nor SIGTERM, or read and say nothing.
if (process.argv.includes("--loud")) console.error("a line on stderr");
if (process.argv.includes("--stubborn")) process.on("SIGTERM", () => {});
if (process.argv.includes("--mute")) setInterval(() => {}, 1 << 30);
else {
  let unread = "";
  process.stdin.setEncoding("utf8").on("data", (text) => {
    const lines = (unread + text).split("\n");
    unread = lines.pop();
    for (const line of lines) if (line.trim() !== "") void handle(line);
  });
}
if (!process.argv.includes("--mute"))
  process.stdin.resume().on("end", () => {
    if (!process.argv.includes("--stubborn")) process.exit(0);
  });
