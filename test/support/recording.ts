/** Turns of an agent behind a server, while the server, the agent and the client are killed at random. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { Editor } from "./acp.ts";
import { acpLike, lives, pidOf, piLike, spawnWithAgent } from "./agents.ts";
import type { Random } from "./random.ts";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

/** Milliseconds after which something that was waited for counts as hanging. */
const HANGING = 60_000;

type Victim = "servers" | "agents" | "clients";
const VICTIMS: readonly Victim[] = ["servers", "agents", "clients"];

/** How many turns there were, how many messages or turns the client was shown as finished, and who was killed. */
export type Recorded = Readonly<Record<"turns" | "shown" | Victim, number>>;

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

/** What an agent is asked for, and whether it dies in the middle. */
function someWish(random: Random, turn: number): string {
  const wish = `turn ${turn} tools ${random.int(3)} chunks ${1 + random.int(40)}${random.chance(0.3) ? " every 1" : ""}`;
  return random.chance(0.1) ? `${wish} die after ${1 + random.int(5)}` : wish;
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

// --- in Pi's place -----------------------------------------------------------------------------------------------

/** A message as it is told apart from all others. */
const keyOf = ({ role, timestamp, content }: Json): string => JSON.stringify([role, timestamp, content]);

/** Has so many turns on one session. What was shown as finished must be in it once, and nothing twice. */
export async function recordAtRandom(random: Random, turns: number): Promise<Recorded> {
  const place = temporaryPlace();
  const file = join(place.home, "recorded.jsonl");
  const shown = new Set<string>();
  const killed = { servers: 0, agents: 0, clients: 0 };
  for (let done = 0, server: SpawnedServer | undefined; done < turns; ) {
    server ??= spawnWithAgent(piLike(), ["--session", file], place);
    const agent = await inTime("the start of an agent", pidOf(server));
    const victim = random.chance(0.4) ? random.pick(VICTIMS) : undefined;
    const wish = someWish(random, done++);
    const turn = oneTurn(server, wish, shown, random.int(60), victim);
    const { survives, isStruck } = await inTime(`turn ${done} (${wish}, ${victim})`, turn);
    if (victim && isStruck) killed[victim]++;
    // The end of the turn may have been on its way when the server was killed.
    const isDoomed = isStruck && victim !== "agents";
    if (!survives || isDoomed) {
      await inTime("the end of a server", server.exit);
      server = undefined;
      await inTime("the end of an agent", gone(agent));
    } else if (done === turns) await server.finish();
  }
  const reader = spawnWithAgent(piLike(), ["--session", file], place);
  const { data } = await reader.command("get_entries");
  requireHarmless((await reader.command("verify_session")).data.damage);
  await reader.finish();
  const keys: string[] = data.entries.flatMap(({ type, message }: Json) => (type === "message" ? keyOf(message) : []));
  expect([...shown].filter((key) => !keys.includes(key))).toEqual([]);
  expect(keys.filter((key, n) => keys.indexOf(key) !== n)).toEqual([]);
  return { turns, shown: shown.size, ...killed };
}

/** Prompts, and notes what is shown until the turn has ended or the server has. Somebody may die after some messages. */
async function oneTurn(
  server: SpawnedServer,
  message: string,
  shown: Set<string>,
  after: number,
  victim: Victim | undefined,
): Promise<{ survives: boolean; isStruck: boolean }> {
  let left = after;
  let isStruck = false;
  const count = (): void => {
    if (victim === undefined || left-- > 0 || isStruck) return;
    isStruck = true;
    strike(victim, server);
  };
  server.send({ id: message, type: "prompt", message });
  count();
  try {
    for (let isAnswered = false, isOver = false; !isAnswered || !isOver; ) {
      const said = await server.next();
      count();
      if (said.type === "message_end") shown.add(keyOf(said.message));
      if (said.id === message) {
        expect(isAnswered).toBe(false);
        isAnswered = true;
        // A prompt that the agent never had begins no turn.
        if (!said.success) isOver = true;
      }
      if (said.type === "agent_settled") isOver = true;
    }
    return { survives: true, isStruck };
  } catch (error) {
    unlessDead(error);
    return { survives: false, isStruck };
  }
}

// --- editors -------------------------------------------------------------------------------------------------------

/** How an editor comes to an agent. Behind `proxy` the agent itself answers, and is recorded. */
export interface Door {
  readonly agent: "pi" | "acp" | "proxy";
  readonly store: "jsonl" | "v2";
}

/** A turn as the editor was shown it: the text that came, and the calls whose results came. */
interface ShownTurn {
  readonly prompt: string;
  text: string;
  /** All of it is finished. */
  isAnswered: boolean;
  readonly calls: string[];
}

interface ShownSession {
  readonly sessionId: string;
  readonly turns: ShownTurn[];
}

/** Has an editor have so many turns in sessions of a store. What it was shown as finished is there, once. */
export async function recordEditorAtRandom(random: Random, turns: number, door: Door): Promise<Recorded> {
  const place = temporaryPlace();
  const behind = door.agent === "pi" ? [piLike()] : [acpLike(), "--agent-protocol", "acp"];
  const ours = door.agent === "proxy" ? [] : ["--dialect", "acp"];
  const sessions: ShownSession[] = [];
  const killed = { servers: 0, agents: 0, clients: 0 };
  for (let done = 0; done < turns; ) {
    const server = spawnServer([...ours, "--store", door.store, "--agent", ...behind], "lines", place);
    const agents = new Set<number>();
    try {
      const editor = await new Editor(server).begin();
      const session = await opened(editor, random, door, sessions);
      while (done < turns) {
        const victim = random.chance(0.4) ? random.pick(VICTIMS) : undefined;
        const prompt = someWish(random, ++done);
        for (const pid of childrenOf(server)) agents.add(pid);
        const turn: ShownTurn = { prompt, text: "", isAnswered: false, calls: [] };
        session.turns.push(turn);
        const having = editorTurn(editor, session.sessionId, turn, random, door, victim);
        const isStruck = await inTime(`${prompt}, ${victim}`, having);
        for (const pid of childrenOf(server)) agents.add(pid);
        if (victim && isStruck) killed[victim]++;
        // What comes next would be of a server that is about to end.
        if (isStruck && victim !== "agents") break;
      }
      if (done >= turns) await server.finish();
    } catch (error) {
      unlessDead(error);
    }
    await inTime("the end of a server", server.exit);
    for (const pid of agents) await inTime("the end of an agent", gone(pid));
  }
  for (const session of sessions) await checkSession(place, session);
  const shown = sessions.flatMap((session) => session.turns).filter(({ isAnswered }) => isAnswered).length;
  return { turns, shown, ...killed };
}

/** Opens a session that is there, or a new one. An agent that is recorded knows no others. */
async function opened(
  editor: Editor,
  random: Random,
  { agent }: Door,
  sessions: ShownSession[],
): Promise<ShownSession> {
  const { cwd } = editor.server.place;
  const known = sessions.filter(({ turns }) => turns.some(({ isAnswered }) => isAnswered));
  if (agent !== "proxy" && known.length > 0 && random.chance(0.6)) {
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
async function editorTurn(
  editor: Editor,
  sessionId: string,
  turn: ShownTurn,
  random: Random,
  { agent }: Door,
  victim: Victim | undefined,
): Promise<boolean> {
  const id = editor.ask("session/prompt", { sessionId, prompt: [{ type: "text", text: turn.prompt }] });
  let left = random.int(40);
  const cancelsAt = agent !== "proxy" && random.chance(0.1) ? random.int(20) : -1;
  for (let isStruck = false; ; ) {
    if (left-- === cancelsAt) editor.notify("session/cancel", { sessionId });
    if (victim && left < 0 && !isStruck) {
      isStruck = true;
      strike(victim, editor.server as SpawnedServer);
    }
    const message = await editor.next();
    const { sessionUpdate, content, toolCallId, status, _meta } = message.params?.update ?? {};
    if (sessionUpdate === "agent_message_chunk" && _meta === undefined) turn.text += content.text;
    if (sessionUpdate === "tool_call_update" && status === "completed") turn.calls.push(toolCallId);
    if (message.id !== id || "method" in message) continue;
    // One that the agent never had, or that was cancelled before, leaves nothing.
    const isDone = message.result && message.result.stopReason !== "cancelled";
    turn.isAnswered = agent === "proxy" ? isDone : turn.text !== "" || isDone;
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
