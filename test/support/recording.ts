/** Turns of an agent behind a server, while the server, the agent and the client are killed at random. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { Editor } from "./acp.ts";
import { acpLike, lives, pidOf, piLike, spawnWithAgent } from "./agents.ts";
import type { Random } from "./random.ts";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

/** Milliseconds of waiting after which an operation counts as hanging. */
const HANGING = 60_000;

type Victim = "servers" | "agents" | "clients";
const VICTIMS: readonly Victim[] = ["servers", "agents", "clients"];

/** Numbers of turns, of messages or turns that the client was shown as finished, and of kills by victim. */
type Recorded = Readonly<Record<"turns" | "shown" | Victim, number>>;

/** Rejects where a promise takes so long that it counts as hanging. */
async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} hangs`)), HANGING);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function gone(pid: number): Promise<void> {
  while (lives(pid)) await new Promise((resolve) => setTimeout(resolve, 1));
}

function childrenOf({ process: { pid } }: SpawnedServer): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
}

function strike(victim: Victim, server: SpawnedServer): void {
  if (victim === "servers") server.process.kill("SIGKILL");
  if (victim === "agents") for (const agent of childrenOf(server)) process.kill(agent, "SIGKILL");
  // The pipes of a client that is killed are closed at once.
  if (victim === "clients") for (const stream of [server.process.stdin, server.process.stdout]) stream.destroy();
}

/** Returns a prompt for an agent, and whether it dies in the middle. */
function pickRequest(random: Random, turn: number): string {
  const request = `turn ${turn} tools ${random.int(3)} chunks ${1 + random.int(40)}${random.chance(0.3) ? " every 1" : ""}`;
  return random.chance(0.1) ? `${request} die after ${1 + random.int(5)}` : request;
}

/** Expects no damage but what a death leaves. */
function requireHarmless(damage: readonly Json[]): void {
  const harmless = ["torn_tail", "extra_header"];
  expect(damage.filter(({ salvaged, kind }) => !salvaged && !harmless.includes(kind))).toEqual([]);
}

/** Throws an error that does not come from a death. */
function unlessDead(error: unknown): void {
  if (!/ended its output|ENOENT/.test((error as Error).message)) throw error;
}

/** Has one turn. Strikes when it comes to that, and returns whether it did. */
type Having = (text: string, strikes: () => boolean) => Promise<boolean>;

/** Has so many turns at one server after the other, with random kills. Returns their numbers. */
async function havingTurns(
  random: Random,
  turns: number,
  start: () => SpawnedServer,
  begin: (server: SpawnedServer) => Promise<Having>,
): Promise<Record<Victim, number>> {
  const killed = { servers: 0, agents: 0, clients: 0 };
  for (let done = 0; done < turns; ) {
    const server = start();
    const agents = new Set<number>();
    const learnAgents = (): void => {
      for (const pid of childrenOf(server)) agents.add(pid);
    };
    try {
      const have = await inTime("the start of an agent", begin(server));
      while (done < turns) {
        const victim = random.chance(0.4) ? random.pick(VICTIMS) : undefined;
        const text = pickRequest(random, ++done);
        learnAgents();
        let left = random.int(50);
        const strikes = (): boolean => {
          if (victim === undefined || left-- !== 0) return false;
          strike(victim, server);
          killed[victim]++;
          return true;
        };
        const isStruck = await inTime(`${text}, ${victim}`, have(text, strikes));
        learnAgents();
        // The next turn would be of a server that is about to end.
        if (isStruck && victim !== "agents") break;
      }
      if (done >= turns) await server.finish();
    } catch (error) {
      unlessDead(error);
    }
    await inTime("the end of a server", server.exit);
    for (const pid of agents) await inTime("the end of an agent", gone(pid));
  }
  return killed;
}

// --- in Pi's place -----------------------------------------------------------------------------------------------

/** Returns a key that identifies a message. */
const keyOf = ({ role, timestamp, content }: Json): string => JSON.stringify([role, timestamp, content]);

/** Has so many turns on one session. Every message shown as finished must be in it once, and nothing twice. */
export async function recordAtRandom(random: Random, turns: number): Promise<Recorded> {
  const place = temporaryPlace();
  const shown = new Set<string>();
  const start = () => spawnWithAgent(piLike(), ["--session", join(place.home, "recorded.jsonl")], place);
  const killed = await havingTurns(random, turns, start, async (server) => {
    await pidOf(server);
    return (text, strikes) => oneTurn(server, text, shown, strikes);
  });
  const reader = start();
  const { data } = await reader.command("get_entries");
  requireHarmless((await reader.command("verify_session")).data.damage);
  await reader.finish();
  const keys: string[] = data.entries.flatMap(({ type, message }: Json) => (type === "message" ? keyOf(message) : []));
  expect([...shown].filter((key) => !keys.includes(key))).toEqual([]);
  expect(keys.filter((key, n) => keys.indexOf(key) !== n)).toEqual([]);
  return { turns, shown: shown.size, ...killed };
}

/** Prompts, and notes the shown messages until the turn has ended. */
async function oneTurn(server: SpawnedServer, message: string, shown: Set<string>, strikes: () => boolean) {
  server.send({ id: message, type: "prompt", message });
  let isStruck = strikes();
  for (let isAnswered = false, isOver = false; !isAnswered || !isOver; ) {
    const said = await server.next();
    isStruck = strikes() || isStruck;
    if (said.type === "message_end") shown.add(keyOf(said.message));
    if (said.id === message) {
      expect(isAnswered).toBe(false);
      isAnswered = true;
      // A prompt that the agent never had begins no turn.
      if (!said.success) isOver = true;
    }
    if (said.type === "agent_settled") isOver = true;
  }
  return isStruck;
}

// --- editors -------------------------------------------------------------------------------------------------------

/** The way of an editor to an agent. */
export interface Door {
  readonly agent: "pi" | "acp";
  readonly store: "jsonl" | "v2";
}

/** A turn as the editor was shown it: the text that came, the calls whose results came, and whether all of it did. */
interface ShownTurn {
  readonly prompt: string;
  text: string;
  isAnswered: boolean;
  readonly calls: string[];
}

interface ShownSession {
  readonly sessionId: string;
  readonly turns: ShownTurn[];
}

/** Has an editor run so many turns in sessions of a store. Every message shown as finished is there, once. */
export async function recordEditorAtRandom(random: Random, turns: number, door: Door): Promise<Recorded> {
  const place = temporaryPlace();
  const behind = door.agent === "pi" ? [piLike()] : [acpLike(), "--agent-protocol", "acp"];
  const sessions: ShownSession[] = [];
  const start = () => spawnServer(["--dialect", "acp", "--store", door.store, "--agent", ...behind], "lines", place);
  const killed = await havingTurns(random, turns, start, async (server) => {
    const editor = await new Editor(server).begin();
    const session = await opened(editor, random, sessions);
    return (prompt, strikes) => {
      const turn: ShownTurn = { prompt, text: "", isAnswered: false, calls: [] };
      session.turns.push(turn);
      return editorTurn(editor, session.sessionId, turn, random, strikes);
    };
  });
  for (const session of sessions) await checkSession(place, session);
  const shown = sessions.flatMap((session) => session.turns).filter(({ isAnswered }) => isAnswered).length;
  return { turns, shown, ...killed };
}

/** Opens a session that is there, or a new one. */
async function opened(editor: Editor, random: Random, sessions: ShownSession[]) {
  const { cwd } = editor.server.place;
  const known = sessions.filter(({ turns }) => turns.some(({ isAnswered }) => isAnswered));
  if (known.length > 0 && random.chance(0.6)) {
    const session = random.pick(known);
    await editor.load(session.sessionId, cwd);
    return session;
  }
  const { sessionId } = await editor.result("session/new", { cwd, mcpServers: [] });
  const session: ShownSession = { sessionId, turns: [] };
  sessions.push(session);
  return session;
}

/** Prompts, and notes the shown messages until the turn is answered. Returns whether there was a kill. */
async function editorTurn(
  editor: Editor,
  sessionId: string,
  turn: ShownTurn,
  random: Random,
  strikes: () => boolean,
): Promise<boolean> {
  const id = editor.ask("session/prompt", { sessionId, prompt: [{ type: "text", text: turn.prompt }] });
  let beforeCancel = random.chance(0.1) ? random.int(20) : -1;
  for (let isStruck = false; ; ) {
    if (beforeCancel-- === 0) editor.notify("session/cancel", { sessionId });
    isStruck = strikes() || isStruck;
    const message = await editor.next();
    const { sessionUpdate, content, toolCallId, status, _meta } = message.params?.update ?? {};
    if (sessionUpdate === "agent_message_chunk" && _meta === undefined) turn.text += content.text;
    if (sessionUpdate === "tool_call_update" && status === "completed") turn.calls.push(toolCallId);
    if (message.id !== id || "method" in message) continue;
    // One that the agent never had, or that was cancelled before, leaves nothing.
    const isDone = message.result && message.result.stopReason !== "cancelled";
    turn.isAnswered = turn.text !== "" || isDone;
    return isStruck;
  }
}

async function checkSession(place: Place, { sessionId, turns }: ShownSession): Promise<void> {
  const finished = turns.filter(({ isAnswered, calls }) => isAnswered || calls.length > 0);
  if (finished.length === 0) return;
  const reader = spawnServer(["--session", sessionId], "lines", place);
  const { entries } = await reader.result("get_path");
  requireHarmless((await reader.result("verify_session")).damage);
  await reader.finish();
  const messages: Json[] = entries.flatMap(({ message }: Json) => message ?? []);
  const wordsOf = ({ content }: Json): string =>
    content.flatMap(({ type, text }: Json) => (type === "text" ? [text] : [])).join("");
  for (const { prompt, text, isAnswered, calls } of finished) {
    const isAsked = (message: Json): boolean => message.role === "user" && wordsOf(message) === prompt;
    expect(messages.filter(isAsked), prompt).toHaveLength(1);
    const rest = messages.slice(messages.findIndex(isAsked) + 1);
    const next = rest.findIndex(({ role }) => role === "user");
    const said = next < 0 ? rest : rest.slice(0, next);
    const words = said.filter(({ role }) => role === "assistant").map(wordsOf);
    if (isAnswered) expect(words.join(""), prompt).toBe(text);
    const results = said.filter(({ role }) => role === "toolResult").map(({ toolCallId }) => toolCallId);
    for (const call of calls)
      expect(
        results.filter((id) => id === call),
        `${prompt}: ${call}`,
      ).toHaveLength(1);
  }
}
