/** Turns of an editor's agent that are recorded, while the server, the agent and the editor are killed at random. */

import { expect } from "vitest";
import { acpLike, lives } from "./agents.ts";
import type { Random } from "./random.ts";
import type { Recorded } from "./recording.ts";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

/** What the editor was shown as finished in a session: prompts that were answered, with the text of each. */
interface ShownTurns {
  readonly sessionId: string;
  readonly turns: { readonly prompt: string; readonly answer: string }[];
}

async function replyTo(server: SpawnedServer, id: unknown, seen: (message: Json) => void): Promise<Json> {
  for (;;) {
    const message = await server.next();
    seen(message);
    if (message.id === id && !("method" in message)) return message;
  }
}

/** Has so many turns, each life of a server with a session of its own. */
export async function recordAcpAtRandom(random: Random, turns: number, store: string): Promise<Recorded> {
  const place = temporaryPlace();
  const sessions: ShownTurns[] = [];
  const killed = { servers: 0, agents: 0, clients: 0 };
  for (let done = 0; done < turns; ) {
    const server = spawnServer(["--agent", acpLike(), "--agent-protocol", "acp", "--store", store], "lines", place);
    let agent = 0;
    try {
      server.send({ jsonrpc: "2.0", id: "i", method: "initialize", params: { protocolVersion: 1 } });
      agent = (await replyTo(server, "i", () => {})).result.agentCapabilities._meta.pid;
      server.send({ jsonrpc: "2.0", id: "n", method: "session/new", params: { cwd: place.cwd, mcpServers: [] } });
      const { sessionId } = (await replyTo(server, "n", () => {})).result;
      const shown: ShownTurns = { sessionId, turns: [] };
      sessions.push(shown);
      for (; done < turns; ) {
        done++;
        const victim = random.chance(0.3) ? random.pick(["servers", "agents", "clients"] as const) : undefined;
        let left = random.int(40);
        const prompt = `turn ${done} tools ${random.int(3)} chunks ${1 + random.int(40)}`;
        server.send({
          ...{ jsonrpc: "2.0", id: done, method: "session/prompt" },
          params: { sessionId, prompt: [{ type: "text", text: prompt }] },
        });
        let answer = "";
        const { result } = await replyTo(server, done, ({ params }) => {
          const { sessionUpdate, content } = params?.update ?? {};
          if (sessionUpdate === "agent_message_chunk") answer += content.text;
          if (sessionUpdate === "tool_call") answer = "";
          if (!victim || left-- !== 0) return;
          killed[victim]++;
          if (victim === "servers") server.process.kill("SIGKILL");
          if (victim === "agents" && lives(agent)) process.kill(agent, "SIGKILL");
          if (victim === "clients")
            for (const stream of [server.process.stdin, server.process.stdout]) stream.destroy();
        });
        if (result) shown.turns.push({ prompt, answer });
      }
      await server.finish();
    } catch (error) {
      if (!/ended its output/.test((error as Error).message)) throw error;
    }
    await server.exit;
    while (agent > 0 && lives(agent)) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  for (const session of sessions) await checkSession(place, session);
  const shown = sessions.reduce((sum, session) => sum + 2 * session.turns.length, 0);
  return { turns, shown, ...killed };
}

async function checkSession(place: Place, { sessionId, turns }: ShownTurns): Promise<void> {
  if (turns.length === 0) return;
  const reader = spawnServer(["--session", sessionId], "lines", place);
  const { entries } = await reader.result("get_path");
  const { damage } = await reader.result("verify_session");
  await reader.finish();
  expect(damage.filter(({ salvaged, kind }: Json) => !salvaged && kind !== "torn_tail")).toEqual([]);
  const messages = entries.flatMap(({ message }: Json) => message ?? []);
  for (const { prompt, answer } of turns) {
    const asked = messages.flatMap(({ role, content }: Json, at: number) =>
      role === "user" && content[0].text === prompt ? [at] : [],
    );
    expect(asked).toHaveLength(1);
    const rest = messages.slice(asked[0] + 1);
    const next = rest.findIndex(({ role }: Json) => role === "user");
    const last = (next < 0 ? rest : rest.slice(0, next)).findLast(({ role }: Json) => role === "assistant");
    expect(last.content.map(({ text }: Json) => text).join("")).toBe(answer);
  }
}
