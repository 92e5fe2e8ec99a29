/** Turns that an editor has with an agent behind our own sessions, while server, agent and editor are killed at random. */

import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { Editor, type Update } from "./acp.ts";
import { acpLike, lives, piLike } from "./agents.ts";
import type { Random } from "./random.ts";
import { inTime, type Recorded } from "./recording.ts";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

/** A turn as the editor was shown it. */
interface ShownTurn {
  readonly prompt: string;
  /** The text that came, and whether the turn was answered, so that all of it is finished. */
  text: string;
  isAnswered: boolean;
  /** Calls whose results came. */
  readonly calls: string[];
}

/** A session, with the turns that the editor had in it. */
interface ShownSession {
  readonly sessionId: string;
  readonly turns: ShownTurn[];
}

type Victim = "servers" | "agents" | "clients";

function childrenOf({ process: { pid } }: SpawnedServer): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
}

function strike(victim: Victim, server: SpawnedServer): void {
  if (victim === "servers") server.process.kill("SIGKILL");
  if (victim === "agents") for (const agent of childrenOf(server)) process.kill(agent, "SIGKILL");
  // The pipes of a client that is killed are closed at once.
  if (victim === "clients") for (const stream of [server.process.stdin, server.process.stdout]) stream.destroy();
}

function note(turn: ShownTurn, { sessionUpdate, content, toolCallId, status, _meta }: Update): void {
  if (sessionUpdate === "agent_message_chunk" && _meta === undefined) turn.text += content.text;
  if (sessionUpdate === "tool_call_update" && status === "completed") turn.calls.push(toolCallId);
}

/** Has so many turns with an agent that speaks Pi's dialect or the protocol's, in sessions of a store. */
export async function recordEditorAtRandom(
  random: Random,
  turns: number,
  { agent, store }: { agent: "pi" | "acp"; store: string },
): Promise<Recorded> {
  const place = temporaryPlace();
  const behind = agent === "pi" ? ["--agent", piLike()] : ["--agent", acpLike(), "--agent-protocol", "acp"];
  const sessions: ShownSession[] = [];
  const killed = { servers: 0, agents: 0, clients: 0 };
  for (let done = 0; done < turns; ) {
    const server = spawnServer(["--dialect", "acp", "--store", store, ...behind], "lines", place);
    const agents = new Set<number>();
    try {
      const editor = await new Editor(server).begin();
      const session = await opened(editor, random, sessions);
      while (done < turns) {
        done++;
        const victim = random.chance(0.4) ? random.pick(["servers", "agents", "clients"] as const) : undefined;
        const dies = random.chance(0.1) ? ` die after ${1 + random.int(5)}` : "";
        const wish = `tools ${random.int(3)} chunks ${1 + random.int(40)}${random.chance(0.3) ? " every 1" : ""}`;
        const prompt = `turn ${done} ${wish}${dies}`;
        for (const pid of childrenOf(server)) agents.add(pid);
        const turn: ShownTurn = { prompt, text: "", isAnswered: false, calls: [] };
        session.turns.push(turn);
        const isStruck = await inTime(`${prompt}, ${victim}`, oneTurn(editor, session.sessionId, turn, random, victim));
        for (const pid of childrenOf(server)) agents.add(pid);
        if (victim && isStruck) killed[victim]++;
        // What comes next would be of a server that is about to end.
        if (isStruck && victim !== "agents") break;
      }
      if (done >= turns) await server.finish();
    } catch (error) {
      if (!/ended its output|ENOENT/.test((error as Error).message)) throw error;
    }
    await inTime("the end of a server", server.exit);
    for (const pid of agents)
      while (lives(pid)) await inTime("the end of an agent", new Promise((resolve) => setTimeout(resolve, 1)));
  }
  for (const session of sessions) await checkSession(place, session);
  const shown = sessions.flatMap((session) => session.turns).filter(({ isAnswered }) => isAnswered).length;
  return { turns, shown, ...killed };
}

/** Opens a session that is there, or a new one. */
async function opened(editor: Editor, random: Random, sessions: ShownSession[]): Promise<ShownSession> {
  const { cwd } = editor.server.place;
  const known = sessions.filter(({ turns }) => turns.some(({ isAnswered }) => isAnswered));
  if (known.length > 0 && random.chance(0.6)) {
    const session = random.pick(known);
    await editor.load(session.sessionId, cwd);
    return session;
  }
  const { sessionId } = await editor.result("session/new", { cwd, mcpServers: [] });
  const session = { sessionId, turns: [] };
  sessions.push(session);
  return session;
}

/** Prompts, and notes what is shown until the turn is answered. Returns whether somebody was killed. */
async function oneTurn(
  editor: Editor,
  sessionId: string,
  turn: ShownTurn,
  random: Random,
  victim: Victim | undefined,
): Promise<boolean> {
  const id = editor.ask("session/prompt", { sessionId, prompt: [{ type: "text", text: turn.prompt }] });
  let left = random.int(40);
  const cancelsAt = random.chance(0.1) ? random.int(20) : -1;
  let isStruck = false;
  for (;;) {
    if (left-- === cancelsAt) editor.notify("session/cancel", { sessionId });
    if (victim && left < 0 && !isStruck) {
      isStruck = true;
      strike(victim, editor.server as SpawnedServer);
    }
    const message = await editor.next();
    if (message.params?.update) note(turn, message.params.update);
    if (message.id !== id || "method" in message) continue;
    // One that the agent never had, or that was cancelled before, leaves nothing.
    turn.isAnswered = turn.text !== "" || (message.result && message.result.stopReason !== "cancelled");
    return isStruck;
  }
}

async function checkSession(place: Place, { sessionId, turns }: ShownSession): Promise<void> {
  const finished = turns.filter(({ isAnswered, calls }) => isAnswered || calls.length > 0);
  if (finished.length === 0) return;
  const reader = spawnServer(["--session", sessionId], "lines", place);
  const { entries } = await reader.result("get_path");
  const { damage } = await reader.result("verify_session");
  await reader.finish();
  const harmless = new Set(["torn_tail", "extra_header"]);
  expect(damage.filter(({ salvaged, kind }: Json) => !salvaged && !harmless.has(kind))).toEqual([]);
  const messages: Json[] = entries.flatMap(({ message }: Json) => message ?? []);
  const wordsOf = ({ content }: Json): string =>
    content.flatMap(({ type, text }: Json) => (type === "text" ? [text] : [])).join("");
  for (const { prompt, text, isAnswered, calls } of finished) {
    const asked = messages.flatMap((message, at) =>
      message.role === "user" && wordsOf(message) === prompt ? [at] : [],
    );
    expect(asked, prompt).toHaveLength(1);
    const rest = messages.slice(asked[0] + 1);
    const next = rest.findIndex(({ role }) => role === "user");
    const said = next < 0 ? rest : rest.slice(0, next);
    const words = said.filter(({ role }) => role === "assistant").map(wordsOf);
    if (isAnswered) expect(words.join(""), prompt).toBe(text);
    for (const call of calls)
      expect(
        said.filter(({ role, toolCallId }) => role === "toolResult" && toolCallId === call),
        `${prompt}: ${call}`,
      ).toHaveLength(1);
  }
}
