// Two servers on "two machines", each with folders of its own, and a PostgreSQL between them: one is killed in the middle
// of a turn, and the other goes on with the session. Needs a build, the package pg, and PostgreSQL's programs.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { startDatabase } from "./database.js";

const PROGRAM = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));

/** A server on a machine of its own. */
class Machine {
  constructor(name, folder, url) {
    this.name = name;
    this.home = join(folder, name);
    this.environment = {
      ...process.env,
      ...{ HOME: this.home, PI_SESSION_SERVER_STATE_DIR: join(this.home, "state"), PI_FLEET_URL: url },
    };
    mkdirSync(this.home);
  }

  start(...args) {
    this.waiting = new Map();
    this.ids = 0;
    this.child = spawn(process.execPath, [PROGRAM, ...args], {
      cwd: this.home,
      env: this.environment,
      stdio: ["pipe", "pipe", "inherit"],
    });
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      this.waiting.get(message.id)?.(message);
      this.waiting.delete(message.id);
    });
  }

  ask(method, params = {}) {
    const id = ++this.ids;
    this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    return new Promise((resolve) => this.waiting.set(id, resolve));
  }

  async result(method, params) {
    const { result, error } = await this.ask(method, params);
    if (error) throw new Error(`${this.name}: ${error.message}`);
    return result;
  }

  async end() {
    const gone = new Promise((resolve) => this.child.on("exit", resolve));
    this.child.stdin.end();
    await gone;
  }
}

const say = (machine, text) => console.log(`${machine ? `[${machine}]` : "          "} ${text}`);
const user = (text) => ({ type: "message", message: { role: "user", content: text } });
const assistant = (text) => ({
  type: "message",
  message: { role: "assistant", content: [{ type: "text", text }], provider: "demo", model: "scripted" },
});

async function show(folder) {
  const url = `postgres:///postgres?host=${encodeURIComponent(folder)}&user=fleet`;
  const [one, two] = ["machine-1", "machine-2"].map((name) => new Machine(name, folder, url));
  execFileSync(process.execPath, [PROGRAM, "fleet", "migrate"], { env: one.environment, stdio: "inherit" });
  one.start();
  const { sessionId } = await one.result("get_state");
  await one.result("append", { entries: [user("Make the build pass."), assistant("I look at the log first.")] });
  say(one.name, `began session ${sessionId.slice(0, 8)}; its two entries are in the database`);
  const half = one.ask("append", {
    entries: [assistant("The import of driver.ts is missing."), assistant("I add it.")],
    idempotencyKey: "turn-1",
  });
  await new Promise((resolve) => setTimeout(resolve, 1));
  one.child.kill("SIGKILL");
  say(one.name, "is killed in the middle of the turn; its answer may be lost");
  void half;
  two.start("--session", sessionId);
  const { messageCount, sessionFile } = await two.result("get_state");
  say(
    two.name,
    `opens the session by its id: ${messageCount} messages, from the database into ${sessionFile.replace(two.home, "~")}`,
  );
  const began = performance.now();
  for (let isReported = false; ; isReported = true) {
    const params = {
      entries: [assistant("The import of driver.ts is missing."), assistant("I add it.")],
      idempotencyKey: "turn-1",
    };
    const { error } = await two.ask("append", params);
    if (!error) break;
    if (error.data.name !== "session_locked") throw new Error(error.message);
    if (!isReported) say(two.name, `must wait: ${error.message}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  say(
    two.name,
    `repeats the turn under its key after ${((performance.now() - began) / 1000).toFixed(1)} s, when the lease had run out`,
  );
  const { entries } = await two.result("get_entries");
  for (const { message } of entries) say("", `${message.role}: ${message.content?.[0]?.text ?? message.content}`);
  await two.end();
  one.start("--session", sessionId);
  const after = await one.result("get_state");
  say(one.name, `comes back, and has ${after.messageCount} messages: nothing is lost, nothing is there twice`);
  await one.end();
}

const folder = mkdtempSync(join(tmpdir(), "pi-fleet-demo-"));
const database = await startDatabase(folder);
try {
  await show(folder);
} finally {
  database.removeAllListeners("exit");
  database.kill("SIGINT");
  rmSync(folder, { recursive: true, force: true });
}
