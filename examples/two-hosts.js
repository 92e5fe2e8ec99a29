// `node examples/two-hosts.js`: an editor and an agent on one session, each with a server of its own. The agent's server,
// which holds the session, is killed in the midst of its work; the editor goes on, and so does the agent's next one.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, isolatedEnvironment } from "./client.js";

const home = mkdtempSync(join(tmpdir(), "two-hosts-"));
const cwd = join(home, "project");
mkdirSync(cwd);
const file = join(home, "shared.jsonl");
const env = isolatedEnvironment(home);

const coloured = process.stdout.isTTY && !process.env.NO_COLOR;
const paint = (code, text) => (coloured ? `\u001b[${code}m${text}\u001b[0m` : text);
const COLOURS = { agent: 36, editor: 33 };
const say = (who, text) => console.log(`${paint(COLOURS[who] ?? 1, who.padEnd(7))} ${text}`);

/** A host with its server; it prints what it hears of the other. */
function host(name) {
  const client = new Client(["--session", file], {
    env,
    cwd,
    onEvent(event, { origin, entryIds, isSelf }) {
      if (event === "session_append" && origin !== "self") say(name, `hears of ${entryIds.length} from the other host`);
      if (event === "session_owner_changed")
        say(name, isSelf ? "holds the session now" : "goes on with the new holder");
    },
  });
  return {
    client,
    async write(role, text) {
      const content = role === "user" ? text : [{ type: "text", text }];
      const { leafId } = await client.request("append", {
        entries: [{ type: "message", message: { role, content } }],
      });
      say(name, `${role}: ${text} (${leafId})`);
    },
  };
}

try {
  let agent = host("agent");
  await agent.write("user", "Rename the store.");
  const editor = host("editor");
  await editor.write("user", "And keep the old name as an alias.");
  await agent.write("assistant", "Done, with an alias.");
  const { holder } = await editor.client.request("get_state");
  say("editor", `its writes are done by process ${holder?.pid}, which is the agent's server`);

  say("", "The agent's server is killed while the editor writes.");
  const written = editor.write("user", "Did the tests pass?");
  const killed = performance.now();
  agent.client.kill();
  await written;
  say("", `The editor lost nothing and waited ${Math.round(performance.now() - killed)} ms. The agent starts again.`);

  agent = host("agent");
  await agent.write("assistant", "Yes: 12 of 12.");
  await editor.client.request("get_state");
  const texts = readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .flatMap((line) => JSON.parse(line).message ?? [])
    .map(({ role, content }) => `${role}: ${typeof content === "string" ? content : content[0].text}`);
  say("", "The file has each of them once, in one order:");
  for (const text of texts) console.log(`        ${text}`);
  for (const { client } of [agent, editor]) await client.close();
} finally {
  rmSync(home, { recursive: true, force: true });
}
