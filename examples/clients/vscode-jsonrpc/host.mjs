// A host on vscode-jsonrpc, with Content-Length headers as editors speak them. `npm install vscode-jsonrpc`, then
// `node host.mjs`. Copy `start`; the rest is the demonstration.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from "vscode-jsonrpc/node";

/**
 * Starts the server. A request that fails rejects with an error whose `data.name` says what failed; without `data`,
 * the server is gone. `onHook` answers null to allow, `{ cancel: true }` to stop.
 */
async function start(program, args, { onEvent, onHook }) {
  const options = ["--framing", "headers", "--dialect", "jsonrpc", ...args];
  const child = spawn(program, options, { stdio: ["pipe", "pipe", "inherit"] });
  await new Promise((resolve, reject) => {
    child.once("spawn", resolve);
    child.once("error", ({ message }) => reject(new Error(`The server cannot be started: ${message}.`)));
  });
  const exit = new Promise((resolve) => child.once("exit", (status, signal) => resolve(status ?? signal)));
  const reader = new StreamMessageReader(child.stdout);
  // Otherwise a timer would keep this process alive for ever if the server died in the middle of a message.
  reader.partialMessageTimeout = 0;
  const connection = createMessageConnection(reader, new StreamMessageWriter(child.stdin));
  connection.onNotification((name, params) => onEvent(name, params));
  connection.onRequest((name, params) => onHook(name, params));
  // Without this, requests that will not get a reply any more would wait for ever.
  connection.onClose(() => connection.dispose());
  connection.listen();
  return {
    async call(name, params = {}) {
      try {
        return await connection.sendRequest(name, params);
      } catch (error) {
        if (error.data) throw error;
        throw new Error(`The server ended before it answered ${name}: ${error.message}.`);
      }
    },
    /** Lets the server finish all that was sent and waits for its end. */
    async close() {
      await connection.sendRequest("shutdown");
      await connection.sendNotification("exit");
      return exit;
    },
  };
}

/** The content of a message is a string or a list of blocks. */
const textOf = ({ content }) =>
  typeof content === "string" ? content : content.map(({ text }) => text ?? "").join("");

const entry = (role, content) => ({ type: "message", message: { role, content } });

/** Prints the lines that README.md shows. */
async function demonstrate(folder) {
  const events = [];
  const server = await start(process.env.PI_SESSION_SERVER || "pi-session-server", ["--session-dir", folder], {
    onEvent: (name) => events.push(name),
    onHook(name) {
      console.log(`hook: ${name}`);
      return null;
    },
  });
  const info = await server.call("initialize", { capabilities: { hooks: [{ name: "session_before_fork" }] } });
  console.log(`server: ${info.serverInfo.name}, protocol ${info.protocolVersion}`);

  const answer = entry("assistant", [{ type: "text", text: "Blue." }]);
  const turn = { entries: [entry("user", "Grüße, 世界 🌍! Name a colour."), answer], idempotencyKey: "turn-1" };
  const { entryIds } = await server.call("append", turn);
  console.log(`append: ${entryIds.length} entries`);
  const again = await server.call("append", turn);
  console.log(`append with the same key: ${`${again.entryIds}` === `${entryIds}` ? "the same" : "other"} entries`);
  for (const message of (await server.call("get_messages")).messages)
    console.log(`${message.role}: ${textOf(message)}`);

  const fork = await server.call("fork", { entryId: entryIds[0] });
  console.log(`fork before: ${fork.text}`);
  await server.call("append", { entries: [entry("user", "é".repeat(700_000))], idempotencyKey: "turn-2" });
  const { messages } = await server.call("get_messages");
  console.log(`long message: ${textOf(messages[0]).length} characters`);
  try {
    await server.call("get_entry", { entryId: "ffffffff" });
  } catch (error) {
    if (!error.data) throw error;
    console.log(`failure: ${error.data.name} (${error.code})`);
  }

  const status = await server.close();
  console.log(`events: ${events.join(" ")}`);
  console.log(`exit status: ${status}`);
  if (status !== 0) process.exitCode = 1;
}

const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
try {
  await demonstrate(folder);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
