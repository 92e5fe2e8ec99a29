/**
 * Random sessions, and the updates that an editor must have received for them. They are worked out from the stored entries
 * by other means than the server's, and compared with the received ones entry by entry.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { replaceHalves } from "../../src/core/json/halves.ts";
import { type Editor, ours, type Update } from "./acp.ts";
import { headerText, SESSION } from "./lines.ts";
import type { Random } from "./random.ts";
import { type Json, type Place, serveHere } from "./server.ts";

const WORDS = ["plain", "“quoted”", "\u2028", "straße", "😀", "`code`", "\u0000", "\ud83d", "line\nline", '{"json":1}'];
const TOOLS = ["bash", "read", "edit", "write", "grep", "TodoWrite", "nobody_knows", ""];

function words(random: Random): string {
  if (random.chance(0.01)) return "long 😀 ".repeat(20_000);
  return Array.from({ length: random.int(6) }, () => random.pick(WORDS)).join(" ");
}

function block(random: Random): Json {
  if (random.chance(0.1)) return { type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" };
  if (random.chance(0.05))
    return random.pick<Json>([{ type: "media", data: "x" }, { type: "image" }, 7, null, "loose"]);
  return { type: "text", text: words(random) };
}

function content(random: Random): Json {
  if (random.chance(0.2)) return words(random);
  if (random.chance(0.02)) return random.pick<Json>([undefined, null, 5, {}]);
  return Array.from({ length: random.int(4) }, () => block(random));
}

function call(random: Random, id: string): Json {
  const given = random.pick<Json>([
    { command: words(random) },
    { path: "src/a.ts", offset: 3 },
    { path: "/abs/b.ts", edits: [{ oldText: "a", newText: words(random) }] },
    { file_path: "c.ts", content: "new" },
    { todos: [{ content: "do it", status: "in_progress" }, { status: 9 }] },
    "text",
    null,
    undefined,
  ]);
  return { type: "toolCall", id, name: random.pick(TOOLS), arguments: given };
}

/** The lines of a session of `count` entries; `branching` is the chance that one continues another than the last. */
export function randomSession(random: Random, count: number, branching = 0.03): { text: string; entries: Json[] } {
  const entries: Json[] = [];
  const ids: string[] = [];
  /** Ids of calls that a result may name. */
  let open: string[] = [];
  const used: string[] = [];
  const usage = { input: 5, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 7, cost: { total: 0.25 } };
  const message = (role: string, more: Json): Json => ({ type: "message", message: { role, ...more } });
  const made = (): Json => {
    const roll = random.int(20);
    if (roll < 4) return message("user", { content: content(random) });
    if (roll < 9) {
      const calls = Array.from({ length: random.int(4) }, (_, n) => {
        if (random.chance(0.1)) return call(random, "");
        return call(random, random.chance(0.1) && used.length > 0 ? random.pick(used) : `call ${entries.length} ${n}`);
      });
      open = calls.map(({ id }) => id);
      used.push(...open);
      const thought = { type: "thinking", thinking: words(random), redacted: random.chance(0.2) };
      const said = content(random);
      const blocks = [...(random.chance(0.4) ? [thought] : []), ...(Array.isArray(said) ? said : []), ...calls];
      const failed = random.chance(0.1) ? { errorMessage: "The provider refused." } : {};
      return message("assistant", { content: blocks, usage, model: "claude-x", provider: "p", ...failed });
    }
    if (roll < 14) {
      const isOpen = open.length > 0 && random.chance(0.9);
      const named = isOpen ? open.splice(random.int(open.length), 1)[0] : `lone ${entries.length}`;
      const result = { toolCallId: random.chance(0.1) ? "" : named, toolName: "bash", content: content(random) };
      const details = random.chance(0.3) ? { details: { n: 1 } } : {};
      return message("toolResult", { ...result, isError: random.chance(0.2), ...details });
    }
    return random.pick<Json>([
      message("bashExecution", { command: "ls", output: words(random), exitCode: random.int(2), cancelled: false }),
      message("custom", { customType: "note", content: words(random), display: random.chance(0.5) }),
      message("system", { content: "You are." }),
      message("somebody", { content: words(random) }),
      { type: "compaction", summary: words(random), firstKeptEntryId: ids[0] ?? "x", tokensBefore: 9 },
      { type: "branch_summary", summary: words(random), fromId: ids[0] ?? "root" },
      { type: "model_change", provider: "p", modelId: "claude-x" },
      { type: "thinking_level_change", thinkingLevel: "high" },
      { type: "session_info", name: words(random) },
      { type: "label", targetId: ids[0] ?? "x", label: "here" },
      { type: "custom", customType: "mine", data: { deep: [1] } },
      { type: "custom_message", customType: "shown", content: content(random), display: random.chance(0.7) },
      { type: "usage", kind: "x", usage },
      { type: "unheard_of", anything: true },
    ]);
  };
  while (entries.length < count) {
    const id = random.hex(4) + entries.length.toString(16).padStart(4, "0");
    // Some go on further up, so that there are branches; most at the end, so that paths are long.
    const isBranch = ids.length > 0 && random.chance(branching);
    const parentId = isBranch ? random.pick(ids.slice(-40)) : (ids.at(-1) ?? null);
    const { type, ...rest } = made();
    entries.push({ type, id, parentId, timestamp: "2026-01-24T16:22:26.831Z", ...rest });
    ids.push(id);
  }
  return { text: `${[headerText(), ...entries.map((entry) => JSON.stringify(entry))].join("\n")}\n`, entries };
}

/** The updates of an entry, in words to which both versions are brought. */
type Said = Json[];

/** Joins texts of one kind that follow each other: the places where a text is cut are not promised. */
function joined(list: Said): Said {
  const all: Said = [];
  for (const [kind, ...rest] of list) {
    const last = all.at(-1);
    const isText = rest.length === 1 && kind !== "call" && kind !== "title";
    if (isText && last?.length === 2 && last[0] === kind) last[1] += rest[0];
    else all.push([kind, ...rest]);
  }
  return all.filter(([kind, text]) => !(kind === "summary" && text === ""));
}

function said(kind: string, value: Json): Said {
  const list = typeof value === "string" ? [{ type: "text", text: value }] : Array.isArray(value) ? value : [];
  return list.flatMap((one: Json): Said => {
    const given = typeof one === "object" && one !== null && !Array.isArray(one) ? one : {};
    if (given.type === "text" && typeof given.text === "string") return given.text === "" ? [] : [[kind, given.text]];
    if (given.type === "image" && typeof given.data === "string") return [[kind, "image", given.data]];
    return [[kind, `[${typeof given.type === "string" ? given.type : "content"} that cannot be shown]`]];
  });
}

/** Updates for messages of a role, or entries of a type. */
const SHOWS: Readonly<Record<string, (of: Json) => Said>> = {
  user: (of) => said("user", of.content),
  bashExecution: ({ output }) => [["ran", output]],
  system: () => [],
  toolResult: () => [],
  compaction: ({ summary }) => said("summary", summary),
  branch_summary: ({ summary }) => said("summary", summary),
  session_info: ({ name }) => [["title", name]],
  assistant: ({ content, errorMessage }) => [
    ...(Array.isArray(content) ? content : []).flatMap((one: Json): Said => {
      if (one?.type === "toolCall") return [["call", one.name]];
      return one?.type === "thinking" ? said("thought", one.redacted ? "" : one.thinking) : said("agent", [one]);
    }),
    ...said("agent", errorMessage ?? ""),
  ],
};

/** Returns the updates for the calls of a step and the results that came for them. */
function callsShown(step: readonly Json[], results: readonly Json[]): Json[] {
  const answers = new Map<Json, Json>();
  const lone: Json[] = [];
  const statusOf = (message: Json): string => (message.isError ? "failed" : "completed");
  const isFree = (one: Json): boolean => !answers.has(one);
  // The ids decide first, and among those without one the order.
  for (const { message } of results) {
    const fits = step.find((one) => isFree(one) && one.id === message.toolCallId && one.id !== "");
    if (fits) answers.set(fits, message);
  }
  for (const { id: entryId, message } of results) {
    if ([...answers.values()].includes(message)) continue;
    const fits = step.find((one) => isFree(one) && (one.id === "" || message.toolCallId === ""));
    if (fits) answers.set(fits, message);
    else lone.push({ entryId, isLone: true, status: statusOf(message), said: said("r", message.content) });
  }
  const answered = step.map((one) => {
    const message = answers.get(one);
    if (message) return { ...one, status: statusOf(message), said: said("r", message.content) };
    return { ...one, status: "failed", said: [["r", "none"]] };
  });
  return [...lone, ...answered];
}

/** Returns the updates that an editor must have received for a path, entry by entry, calls and results apart. */
function expected(path: readonly Json[]): { shown: Map<string, Said>; calls: Json[] } {
  const shown = new Map<string, Said>();
  const steps: { calls: Json[]; results: Json[] }[] = [{ calls: [], results: [] }];
  for (const entry of path) {
    const { id, type } = entry;
    const of = type === "message" ? entry.message : entry;
    const showsNone = of.display === false || !["message", "custom_message"].includes(type);
    const shows = SHOWS[type === "message" ? of.role : type] ?? (() => (showsNone ? [] : said("agent", of.content)));
    shown.set(id, shows(of));
    if (type !== "message") continue;
    if (of.role === "toolResult") steps.at(-1)?.results.push(entry);
    if (of.role !== "assistant") continue;
    const calls = (Array.isArray(of.content) ? of.content : []).filter((one: Json) => one?.type === "toolCall");
    const made = calls.map((one: Json) => ({ entryId: id, id: one.id, name: one.name, given: one.arguments }));
    steps.push({ calls: made, results: [] });
  }
  return { shown, calls: steps.flatMap(({ calls, results }) => callsShown(calls, results)) };
}

/** The beginning of words that the server puts before a summary. */
const BEFORE = /^(?:Summary of another branch|The model sees a summary of the conversation up to here):\n\n/;

/** Returns the updates that an editor received, in the same words. */
function collectShown(updates: readonly Update[]): { shown: Map<string, Said>; calls: Map<string, Json> } {
  const shown = new Map<string, Said>();
  const calls = new Map<string, Json>();
  for (const update of updates) {
    const { entryId, kind, type } = ours(update) ?? {};
    if (entryId !== undefined && !shown.has(entryId)) shown.set(entryId, []);
    const here = shown.get(entryId) ?? [];
    const { sessionUpdate, toolCallId } = update;
    const [, who] = /^(?:agent_)?(user|agent|thought)(?:_message)?_chunk$/.exec(sessionUpdate) ?? [];
    if (who !== undefined) {
      expect(update.messageId).toBe(entryId);
      const isSummary = kind === "compaction" || kind === "branch_summary";
      here.push(...said(isSummary ? "summary" : who, [update.content]));
    } else if (sessionUpdate === "compaction_update")
      here.push(["summary", update.summary.map(({ text }: Json) => text).join("")]);
    else if (sessionUpdate === "tool_call") {
      expect(calls.has(toolCallId), `${toolCallId} twice`).toBe(false);
      calls.set(toolCallId, { ...update, entryId });
      if (update.kind === "execute" && isRun(update))
        here.push(["ran", update.content.map((one: Json) => one.content.text).join("")]);
      else if (update.status === "pending") here.push(["call", update.name ?? ""]);
    } else if (sessionUpdate === "tool_call_update") {
      const call = calls.get(toolCallId);
      expect(call).toBeDefined();
      calls.set(toolCallId, { ...call, ...update, entryId: call.entryId, isUnanswered: kind === "no_result" });
    } else if (sessionUpdate === "session_info_update" && type === "session_info") here.push(["title", update.title]);
  }
  return { shown, calls };
}

/** Returns whether a call is a command that the person ran. */
const isRun = ({ rawOutput, name }: Json): boolean => rawOutput?.exitCode !== undefined && name === undefined;

/** Throws unless an editor was shown exactly a path. */
export function requireShown(path: readonly Json[], updates: readonly Update[]): void {
  // No half of a character is sent.
  const must = expected(JSON.parse(replaceHalves(JSON.stringify(path))));
  const was = collectShown(updates);
  expect([...was.shown.keys()]).toEqual(path.map(({ id }) => id));
  for (const [id, shown] of must.shown) {
    const seen = joined(was.shown.get(id) ?? []).map(([kind, text, ...more]) =>
      kind === "summary" ? [kind, text.replace(BEFORE, "")] : [kind, text, ...more],
    );
    expect([id, joined(seen)]).toEqual([id, joined(shown)]);
  }
  const ended = [...was.calls.values()].filter((one) => !isRun(one));
  expect(ended).toHaveLength(must.calls.length);
  expect(ended.filter(({ status }) => status === "pending")).toEqual([]);
  for (const call of must.calls) {
    // An id of the server's making is that of a call whose own was used before.
    const isOf = ({ toolCallId }: Json): boolean =>
      call.isLone || toolCallId === call.id || call.id === "" || toolCallId.startsWith(`${call.entryId}/`);
    const at = ended.findIndex((one) => one.entryId === call.entryId && isOf(one));
    expect(at, JSON.stringify(call)).toBeGreaterThanOrEqual(0);
    const [one] = ended.splice(at, 1);
    expect([one.toolCallId, one.status]).toEqual([one.toolCallId, call.status]);
    const texts = one.content.filter((part: Json) => part.type === "content").map(({ content }: Json) => content);
    if (one.isUnanswered) expect(call.said).toEqual([["r", "none"]]);
    else expect(said("r", texts)).toEqual(call.said);
    if (!call.isLone) expect(one.rawInput).toEqual(call.given);
  }
}

/** Puts a session with this text into a store of a place. Its path in the first one. */
export async function storedIn(place: Place, store: string, text: string): Promise<string> {
  const folder = join(place.home, ".pi/agent/sessions/--home-me-project--");
  mkdirSync(folder, { recursive: true });
  const sessionPath = join(folder, `2026-01-24T16-22-26-831Z_${SESSION}.jsonl`);
  writeFileSync(sessionPath, text);
  if (store === "jsonl") return sessionPath;
  const server = serveHere([], { place });
  await server.result("migrate_session", { sessionPath });
  await server.finish();
  return sessionPath;
}

/** The entries from the root to one. */
export function pathTo(entries: readonly Json[], id: string | null): Json[] {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const path: Json[] = [];
  for (let at = byId.get(id); at; at = byId.get(at.parentId)) path.push(at);
  return path.reverse();
}

/** Loads a session and throws unless all of it was shown, and only it. */
export async function requireLoaded(editor: Editor, sessionId: string, cwd: string, path: readonly Json[]) {
  const { updates } = await editor.load(sessionId, cwd);
  requireShown(path, updates);
}
