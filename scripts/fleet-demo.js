// Two servers on "two machines", each with folders of its own, and a PostgreSQL between them: one is killed in the middle
// of a turn, and the other goes on with the session. Needs a build, the package pg, and PostgreSQL's programs.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { program } from "../bench/measure.js";
import { Server } from "../bench/server.js";
import { endDatabase, startDatabase } from "./database.js";

const say = (machine, text) => console.log(`${machine ? `[${machine}]` : "          "} ${text}`);
const user = (text) => ({ type: "message", message: { role: "user", content: text } });
const assistant = (text) => ({
  type: "message",
  message: { role: "assistant", content: [{ type: "text", text }], provider: "demo", model: "scripted" },
});

async function show(folder) {
  const url = `postgres:///postgres?host=${encodeURIComponent(folder)}&user=fleet`;
  const [first, second] = ["machine-1", "machine-2"].map((name) => join(folder, name));
  for (const home of [first, second]) mkdirSync(home);
  const variables = { PI_FLEET_URL: url };
  const start = (home, ...given) => new Server(home, { given, variables });
  const env = { ...process.env, HOME: first, PI_SESSION_SERVER_STATE_DIR: join(first, "state"), ...variables };
  execFileSync(process.execPath, [program, "fleet", "migrate"], { env, stdio: "inherit" });
  const one = start(first);
  const { sessionId } = (await one.ask("get_state")).result;
  await one.ask("append", { entries: [user("Make the build pass."), assistant("I look at the log first.")] });
  say("machine-1", `began session ${sessionId.slice(0, 8)}; its two entries are in the database`);
  const half = one.ask("append", {
    entries: [assistant("The import of driver.ts is missing."), assistant("I add it.")],
    idempotencyKey: "turn-1",
  });
  await new Promise((resolve) => setTimeout(resolve, 1));
  one.process.kill("SIGKILL");
  say("machine-1", "is killed in the middle of the turn; its answer may be lost");
  void half;
  const two = start(second, "--session", sessionId);
  const { messageCount, sessionFile } = (await two.ask("get_state")).result;
  say(
    "machine-2",
    `opens the session by its id: ${messageCount} messages, from the database into ${sessionFile.replace(second, "~")}`,
  );
  const began = performance.now();
  for (let isReported = false; ; isReported = true) {
    const params = {
      entries: [assistant("The import of driver.ts is missing."), assistant("I add it.")],
      idempotencyKey: "turn-1",
    };
    const error = await two.ask("append", params).then(
      () => undefined,
      (cause) => cause,
    );
    if (!error) break;
    if (error.data?.name !== "session_locked") throw error;
    if (!isReported) say("machine-2", `must wait: ${error.message}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  say(
    "machine-2",
    `repeats the turn under its key after ${((performance.now() - began) / 1000).toFixed(1)} s, when the lease had run out`,
  );
  const { entries } = (await two.ask("get_entries")).result;
  for (const { message } of entries) say("", `${message.role}: ${message.content?.[0]?.text ?? message.content}`);
  await two.end();
  const again = start(first, "--session", sessionId);
  const after = (await again.ask("get_state")).result;
  say("machine-1", `comes back, and has ${after.messageCount} messages: nothing is lost, nothing is there twice`);
  await again.end();
}

const folder = mkdtempSync(join(tmpdir(), "pi-fleet-demo-"));
const database = await startDatabase(folder);
try {
  await show(folder);
} finally {
  await endDatabase(database);
  rmSync(folder, { recursive: true, force: true });
}
