/** Scripted agents behind a server under test. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace, type Wire } from "./server.ts";

const command = (name: string, flags: readonly string[]): string =>
  [process.execPath, fileURLToPath(new URL(`../../examples/agents/${name}`, import.meta.url)), ...flags]
    .map((word) => `'${word}'`)
    .join(" ");

/** The command of the agent that speaks Pi's dialect. */
export const piLike = (...flags: string[]): string => command("pi-like.js", flags);

/** The command of the agent that speaks the Agent Client Protocol. */
export const acpLike = (...flags: string[]): string => command("acp-like.js", flags);

/** Starts a server in Pi's place, with an agent behind it. */
export function spawnWithAgent(agent: string, args: string[] = [], place: Place = temporaryPlace()): SpawnedServer {
  return spawnServer(["--mode", "rpc", "--agent", agent, ...args], "lines", place);
}

/**
 * An agent of a few lines: it opens every session, and runs `onOther` with the text of each other line. It keeps every
 * line that it gets in the file `heard`.
 */
export function ownAgent(place: Place, onOther: string, heard = ""): string {
  const file = join(place.home, "own-agent.mjs");
  writeFileSync(
    file,
    `import { appendFileSync } from "node:fs";
    import { createInterface } from "node:readline";
    const heard = ${JSON.stringify(heard)};
    let opened;
    const say = (message) => process.stdout.write(JSON.stringify(message) + "\\n");
    createInterface({ input: process.stdin }).on("line", (line) => {
      if (heard) appendFileSync(heard, line + "\\n");
      const { id, type, sessionPath } = JSON.parse(line);
      opened = sessionPath ?? opened;
      if (type === "switch_session") say({ id, type: "response", command: type, success: true, data: { cancelled: false } });
      else { ${onOther} }
    }).on("close", () => process.exit());`,
  );
  return `'${process.execPath}' '${file}'`;
}

/** Returns the next message that is meant; those before it are kept among the events. */
export async function until(server: Wire, isMeant: (message: Json) => boolean): Promise<Json> {
  const early = server.events.findIndex(isMeant);
  if (early >= 0) return server.events.splice(early, 1)[0];
  for (;;) {
    const message = await server.next();
    if (isMeant(message)) return message;
    server.events.push(message);
  }
}

export function event(server: Wire, type: string): Promise<Json> {
  return until(server, (message) => message.type === type);
}

/** Has the agent answer a message, and waits for the end of its turn. */
export async function turn(server: Wire, message: string): Promise<Json> {
  const reply = await server.command("prompt", { message });
  if (!reply.success) throw new Error(reply.error);
  await event(server, "agent_settled");
  return reply;
}

export async function data(server: Wire, type: string, params: object = {}): Promise<Json> {
  const reply = await server.command(type, params);
  if (!reply.success) throw new Error(`${type}: ${reply.error}`);
  return reply.data;
}

/** The messages that the session has at its leaf, each as its role and text. */
export async function said(server: Wire): Promise<string[]> {
  const { messages } = await data(server, "get_messages");
  return messages.map(({ role, content }: Json) => `${role}: ${content?.[0]?.text ?? content?.[0]?.name ?? ""}`);
}

/** Returns the process id of the agent, from the scripted agent's own answer. */
export async function pidOf(server: Wire): Promise<number> {
  const { commands } = await data(server, "get_commands");
  return Number(commands[0].description.split(" ")[1]);
}

export function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/**
 * An agent of the Agent Client Protocol of a few lines: it makes sessions, and does `onOther` with each other message.
 * `onNew` is done before it answers a `session/new`.
 */
export function ownAcpAgent(place: Place, onOther: string, capabilities: object = {}, onNew = ""): string {
  const file = join(place.home, "own-acp-agent.mjs");
  writeFileSync(
    file,
    `import { createInterface } from "node:readline";
    import { closeSync } from "node:fs";
    const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n");
    const tell = (sessionId, update) => say({ method: "session/update", params: { sessionId, update } });
    const chunk = (sessionId, text) =>
      tell(sessionId, { sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
    const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
    let made = 0;
    const lines = createInterface({ input: process.stdin });
    lines.on("line", async (line) => {
      const message = JSON.parse(line);
      const { id, method, params = {}, result, error } = message;
      const { sessionId } = params;
      if (method === "initialize")
        say({ id, result: { protocolVersion: 1, agentInfo: { name: "own", version: "1" }, agentCapabilities: ${JSON.stringify(capabilities)} } });
      else if (method === "session/new") {
        ${onNew}
        say({ id, result: { sessionId: "own-" + ++made + "-" + process.pid } });
      } else { ${onOther} }
    });`,
  );
  return `'${process.execPath}' '${file}'`;
}
