/**
 * Sessions as training records (seed 002, "Mapping to lora_forge ExtractedSession"), one for each requested branch.
 * Names are the seed's, in Python's spelling because Python scripts read them.
 */

import { pairUp } from "../context/pairing.ts";
import { getContentText, getToolCalls, type ToolCall, toNumber, toShownText, toStored } from "../format/message.ts";
import type { Session } from "../session/session.ts";
import { getBranches } from "./branches.ts";

interface Turn {
  /** `tool`: results that no assistant message asked for. */
  readonly role: "user" | "assistant" | "tool";
  /** Text blocks joined. */
  readonly content: string;
  readonly tool_calls: ToolCall[];
  /** Results of these calls, in the order of the calls. */
  readonly tool_results: TrainingResult[];
}

type TrainingResult = ReturnType<typeof resultOf>;

type TokenCounts = NonNullable<ReturnType<typeof countsOf>>;

/** Rules that find the role. */
interface RoleRules {
  /** Regular expressions to search for in the working directory, and their roles; the first match counts. */
  readonly patterns: readonly (readonly [RegExp, string])[];
  /** Text before the role in the first user message. */
  readonly marker: string;
}

/** The patterns of seed 002, in its order. Python's `\w` matches letters of all scripts. */
const SEED_PATTERNS: Readonly<Record<string, string>> = {
  "/deacon$": "deacon",
  "/deacon/dogs/boot$": "boot",
  "/witness$": "witness",
  "/refinery/rig$": "refinery",
  "/mayor/rig$": "mayor",
  "/crew/\\w+$": "crew",
  "/polecats/\\w+": "polecat",
};
export const SEED_MARKER = "[GAS TOWN]";

/** Roles of the whole town, which belong to no rig. */
const TOWN_ROLES = new Set(["deacon", "boot"]);

/**
 * Makes rules from patterns in the spelling of Python or JavaScript. Without groups and with few repetitions, every
 * pattern is fast on any path. Returns the first unusable pattern with the reason, if there is one.
 */
export function parseRoleRules(
  patterns: Readonly<Record<string, string>> = SEED_PATTERNS,
  marker: string = SEED_MARKER,
): RoleRules | { readonly pattern: string; readonly reason: string } {
  const rules: [RegExp, string][] = [];
  for (const [pattern, role] of Object.entries(patterns)) {
    const plain = pattern.replace(/\\./g, "").replace(/\[[^\]]*\]/g, "");
    if (plain.includes("(")) return { pattern, reason: "a pattern must not have groups" };
    if ((plain.match(/[*+?{]/g) ?? []).length > MAX_REPETITIONS)
      return { pattern, reason: `a pattern has at most ${MAX_REPETITIONS} repetitions` };
    try {
      rules.push([new RegExp(pattern.replaceAll("\\w", "[\\p{L}\\p{N}_]"), "u"), role]);
    } catch {
      return { pattern, reason: "it is not a regular expression" };
    }
  }
  return { patterns: rules, marker };
}

const MAX_REPETITIONS = 2;
/** Characters at the end of a working directory, or after the marker, that are searched for patterns. */
const SEARCHED_CHARACTERS = 1024;

/** Yields a record for every branch with `all`, the active one first; else for the path to the leaf. */
export function* readTrainingRecords(
  session: Session,
  rules: RoleRules,
  all: boolean,
): Generator<ReturnType<typeof recordOf>> {
  for (const { end, active } of getBranches(session, all ? "all" : "path")) yield recordOf(session, rules, end, active);
}

function recordOf(session: Session, rules: RoleRules, end: number, active: boolean) {
  const { log, tree, cwd } = session;
  const leftOut = new Map<string, number>();
  const leaveOut = (kind: string): void => {
    leftOut.set(kind, (leftOut.get(kind) ?? 0) + 1);
  };
  const turns: Turn[] = [];
  const usages: (TokenCounts | null)[] = [];
  /** Results since the last assistant message, which answer its calls. */
  let results: TrainingResult[] = [];
  let firstUserText: string | undefined;
  const finishTurn = (): void => {
    assignResults(turns, usages, results);
    results = [];
  };
  for (const position of tree.path(end)) {
    const entry = session.entry(position);
    if (entry.type !== "message") {
      if (!SILENT.has(entry.type) && !log.nodes.isMarker(position)) leaveOut(entry.type);
      continue;
    }
    const message = entry.message as Readonly<Record<string, unknown>> | null | undefined;
    const { role, content } = message ?? {};
    if (typeof message !== "object" || message === null) leaveOut("message");
    else if (role === "user") {
      finishTurn();
      const text = getContentText(content);
      firstUserText ??= text;
      turns.push({ role, content: text, tool_calls: [], tool_results: [] });
      usages.push(null);
    } else if (role === "assistant") {
      finishTurn();
      const calls = getToolCalls(content).map((call) => ({ ...call, arguments: call.arguments ?? {} }));
      turns.push({ role, content: getContentText(content), tool_calls: calls, tool_results: [] });
      usages.push(countsOf(message.usage));
    } else if (role === "toolResult") results.push(resultOf(message));
    else leaveOut(`${toShownText(role) || "unknown"} message`);
    for (const block of Array.isArray(content) ? content : []) {
      const { type } = (block ?? {}) as { type?: unknown };
      if (type !== "text" && type !== "toolCall") leaveOut(`${typeof type === "string" ? type : "unknown"} block`);
    }
  }
  finishTurn();
  const sum = (name: keyof TokenCounts): number => usages.reduce((total, one) => total + (one?.[name] ?? 0), 0);
  const model = session.model(end);
  const header = log.header;
  return {
    session_id: session.id,
    turns,
    metadata: {
      cwd,
      // The role that worked there, and the part of the working directory that it belongs to; null if neither is named.
      ...roleOf(cwd, firstUserText ?? "", rules),
      provider: header.provider ?? model?.provider ?? null,
      model: header.modelId ?? model?.id ?? null,
      thinking_level: session.thinkingLevel(end),
      timestamp: header.timestamp ?? null,
      name: session.name,
      parent_session: session.parentSession,
      // Sums over the turns, and the counts of each turn; null for an entry without counts.
      usage: Object.fromEntries(TOKENS.map((name) => [name, sum(name)])),
      cost: sum("cost"),
      turn_usage: usages,
      // The entry that the branch ends with, and whether that is the session's leaf.
      leaf_id: session.idOrNull(end),
      active,
      // Number of items that the mapping has no place for, by kind.
      left_out: Object.fromEntries(leftOut),
    },
  };
}

const TOKENS = ["input", "output", "cache_read", "cache_write", "total"] as const;

/** Types of entries about the session, whose content is in the metadata. */
const SILENT = new Set(["model_change", "thinking_level_change", "label", "session_info"]);

/** Adds results to the turn whose calls they answer; the others make a turn of their own. */
function assignResults(turns: Turn[], usages: (TokenCounts | null)[], results: readonly TrainingResult[]): void {
  if (results.length === 0) return;
  const asked = turns.at(-1);
  const calls = asked?.role === "assistant" ? asked.tool_calls : [];
  const ids = results.map(({ tool_call_id }) => tool_call_id);
  const answers = pairUp(calls, ids);
  const order = results.map((_, index) => index).filter((index) => answers[index] >= 0);
  order.sort((a, b) => answers[a] - answers[b]);
  for (const index of order) asked?.tool_results.push(results[index]);
  const others = results.filter((_, index) => answers[index] < 0);
  if (others.length === 0) return;
  turns.push({ role: "tool", content: "", tool_calls: [], tool_results: others });
  usages.push(null);
}

function resultOf({ toolCallId, toolName, content, isError }: Readonly<Record<string, unknown>>) {
  return {
    tool_call_id: toStored(toolCallId),
    tool_name: toStored(toolName),
    content: getContentText(content),
    is_error: isError === true,
  };
}

function countsOf(usage: unknown) {
  if (typeof usage !== "object" || usage === null) return null;
  const { input, output, cacheRead, cacheWrite, totalTokens, cost } = usage as Readonly<Record<string, unknown>>;
  const counts = {
    input: toNumber(input),
    output: toNumber(output),
    cache_read: toNumber(cacheRead),
    cache_write: toNumber(cacheWrite),
  };
  const sum = counts.input + counts.output + counts.cache_read + counts.cache_write;
  return { ...counts, total: toNumber(totalTokens) || sum, cost: costOf(cost) };
}

/** Returns the cost of a message. Some writers give the total, others only its parts. */
function costOf(cost: unknown): number {
  if (typeof cost !== "object" || cost === null) return toNumber(cost);
  const { total, input, output, cacheRead, cacheWrite } = cost as Readonly<Record<string, unknown>>;
  if (typeof total === "number") return toNumber(total);
  return toNumber(input) + toNumber(output) + toNumber(cacheRead) + toNumber(cacheWrite);
}

/** Returns the role by the working directory, else by the text after the marker in the first user message. */
function roleOf(
  cwd: string,
  firstUserText: string,
  { patterns, marker }: RoleRules,
): { role: string | null; rig: string | null } {
  const byPath = roleIn(cwd, patterns);
  if (byPath) return byPath;
  const at = marker === "" ? -1 : firstUserText.indexOf(marker);
  if (at < 0) return { role: null, rig: null };
  const following = firstUserText.slice(at + marker.length, at + marker.length + SEARCHED_CHARACTERS);
  const [address = ""] = /[\p{L}\p{N}_/-]+/u.exec(following.trimStart().split(/\s/, 1)[0]) ?? [];
  // An address in the town is written like the end of a path.
  const addressed = roleIn(`/${address}`, patterns);
  if (addressed) return addressed;
  const parts = address.split("/").filter((part) => part !== "");
  const roles = new Set(patterns.map(([, role]) => role));
  return { role: parts.find((part) => roles.has(part)) ?? parts[0] ?? null, rig: null };
}

function roleIn(path: string, patterns: RoleRules["patterns"]): { role: string; rig: string | null } | undefined {
  const end = path.slice(-SEARCHED_CHARACTERS);
  for (const [pattern, role] of patterns) {
    const found = pattern.exec(end);
    if (!found) continue;
    const rig = end.slice(0, found.index).split("/").pop() ?? "";
    return { role, rig: rig === "" || TOWN_ROLES.has(role) ? null : rig };
  }
  return undefined;
}
