/**
 * Pairs tool results with tool calls. The results of an assistant message are between it and the next one; ids decide,
 * and where they are empty or repeated, the order does (seed 002).
 */

import { type Damage, makeEntryDamage } from "../format/damage.ts";
import { getToolCalls, type ToolCall, toStored } from "../format/message.ts";
import {
  concat,
  findMember,
  getElements,
  getMembers,
  getMemberValue,
  parse,
  type Range,
  toBytes,
} from "../json/json.ts";
import type { Nodes } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";
import type { Bodies, ContextItem } from "./context.ts";

/** Returns for each result the index of the call that it answers, or -1. */
export function pairUp(calls: readonly { id: string }[], results: readonly string[]): number[] {
  const answers = results.map(() => -1);
  const answered = calls.map(() => false);
  /** Calls by id, the last first. */
  const waiting = new Map<string, number[]>();
  for (const [call, { id }] of [...calls.entries()].reverse())
    waiting
      .set(id, waiting.get(id) ?? [])
      .get(id)
      ?.push(call);
  const pair = (result: number, call: number | undefined): void => {
    if (call === undefined || call >= calls.length) return;
    answered[call] = true;
    answers[result] = call;
  };
  // Exact ids come first, whatever their place, so that a result without an id never takes the call of one with an id.
  for (const [index, id] of results.entries()) if (id !== "") pair(index, waiting.get(id)?.pop());
  let first = 0;
  let unnamed = 0;
  for (const [index, id] of results.entries()) {
    if (answers[index] >= 0) continue;
    while (answered[first]) first++;
    while (unnamed < calls.length && (answered[unnamed] || calls[unnamed].id !== "")) unnamed++;
    pair(index, id === "" ? first : unnamed);
  }
  return answers;
}

/** The part of a tree that shows who speaks: entries that are not appended yet have it too. */
export interface Heads {
  readonly nodes: Pick<Nodes, "role" | "hasNoMessage">;
}

/** Returns whether a path has, from index `at` on, a result for a call between the indexes `from` and `at`. */
export function separates(
  tree: Heads,
  bodies: Pick<Bodies, "entry">,
  path: ArrayLike<number>,
  at: number,
  from: number,
): boolean {
  for (let i = at - 1; i >= from; i--) {
    if (!speaks(tree, path[i])) continue;
    const calls = getToolCalls(messageOf(bodies, path[i]).content);
    if (calls.length === 0) return false;
    const results: number[] = [];
    for (let k = i + 1; k < path.length && !speaks(tree, path[k]); k++)
      if (tree.nodes.role(path[k]) === "toolResult" && !tree.nodes.hasNoMessage(path[k])) results.push(k);
    const ids = results.map((k) => toStored(messageOf(bodies, path[k]).toolCallId));
    const answers = pairUp(calls, ids);
    return results.some((result, index) => result >= at && answers[index] >= 0);
  }
  return false;
}

export interface DanglingCall extends ToolCall {
  /** The assistant message that made the call. */
  readonly position: number;
}

/** The calls of an assistant message that no result answers on the path to a leaf below it. */
export interface Dangling {
  readonly leaf: number;
  readonly speaker: number;
  /** Positions of the results between them, oldest first. */
  readonly results: readonly number[];
  readonly calls: readonly DanglingCall[];
}

/**
 * Returns the calls of the last assistant message on the path to `leaf` that no result answers; only these can still be
 * answered by an append. With `before`, found for a leaf above, only the path from there on is walked.
 */
export function findDanglingCalls(
  tree: Tree,
  bodies: Bodies,
  leaf: number,
  speaker: number,
  before?: Dangling,
): Dangling {
  const { nodes } = tree;
  const asked = getToolCalls(messageOf(bodies, speaker).content);
  // Most assistant messages call nothing: then the number of messages after them does not matter.
  if (asked.length === 0) return { leaf, speaker, results: [], calls: [] };
  const known = before?.speaker === speaker ? before : undefined;
  const more: number[] = [];
  let at = leaf;
  for (; at !== speaker && at !== known?.leaf; at = nodes.parent(at))
    if (nodes.role(at) === "toolResult" && !nodes.hasNoMessage(at)) more.push(at);
  const results = [...(at === speaker ? [] : (known?.results ?? [])), ...more.reverse()];
  const ids = results.map((position) => toStored(messageOf(bodies, position).toolCallId));
  const answers = pairUp(asked, ids);
  const calls = asked.filter((_, index) => !answers.includes(index)).map((call) => ({ ...call, position: speaker }));
  return { leaf, speaker, results, calls };
}

/** Returns the damage that `diagnostics` reports for such a call. */
export function toDanglingDamage({ id, name }: DanglingCall, entryId: string): Damage & Record<string, unknown> {
  const reason = `the call of the tool ${name || "without a name"} has no result; repair_session appends an error result`;
  return { ...makeEntryDamage(entryId, "dangling_tool_call", reason), toolCallId: id, toolName: name };
}

/** Returns an error result for a call that will not get a result of its own any more. */
export function makeLostResult({ id, name }: ToolCall, timestamp: number): Readonly<Record<string, unknown>> {
  return {
    role: "toolResult",
    toolCallId: id,
    toolName: name,
    content: [
      { type: "text", text: "The session ended before this tool answered; whether it did its work is unknown." },
    ],
    isError: true,
    timestamp,
  };
}

function speaks(tree: Heads, position: number): boolean {
  return tree.nodes.role(position) === "assistant" && !tree.nodes.hasNoMessage(position);
}

function messageOf(bodies: Pick<Bodies, "entry">, position: number): { content?: unknown; toolCallId?: unknown } {
  return (bodies.entry(position).message ?? {}) as { content?: unknown; toolCallId?: unknown };
}

// --- a context in which everything is paired -----------------------------------------------------------------------

/** A message of the context and its text. */
export interface Shown {
  readonly item: ContextItem;
  readonly text: Uint8Array;
  /** True if tool calls were removed from it. */
  readonly inPart?: boolean;
}

/**
 * Returns the same messages with every call answered and every result asked for, as providers demand. Calls without a
 * result are removed from their message, and so is the message if only thoughts are left. Results without a call are
 * removed; the others come directly after their call.
 */
export function pairMessages(tree: Tree, shown: readonly Shown[]): Shown[] {
  const out: Shown[] = [];
  let open: { assistant: Shown; results: Shown[]; others: Shown[] } | undefined;
  const close = (): void => {
    if (open) out.push(...answered(open.assistant, open.results), ...open.others);
    open = undefined;
  };
  for (const one of shown) {
    const role = roleOf(tree, one);
    if (role === "assistant") {
      close();
      open = { assistant: one, results: [], others: [] };
    } else if (role === "toolResult") open?.results.push(one);
    else (open?.others ?? out).push(one);
  }
  close();
  return out;
}

function roleOf(tree: Tree, { item, text }: Shown): string {
  if (item.kind === "message") return tree.nodes.role(item.position);
  return item.kind === "retained" ? toStored(getMemberValue(text, getMembers(text) ?? [], "role")) : "";
}

function answered(assistant: Shown, results: readonly Shown[]): Shown[] {
  const { text } = assistant;
  const content = memberRange(text, "content");
  const blocks = (content && getElements(text, content.start, content.end)) ?? [];
  const callBlocks = blocks.map((block) => getToolCalls([parse(text, block.start, block.end)])[0]);
  const calls = callBlocks.filter((call) => call !== undefined);
  if (calls.length === 0) return [assistant];
  const ids = results.map((result) => {
    const id = memberRange(result.text, "toolCallId");
    return toStored(id && parse(result.text, id.start, id.end));
  });
  const answers = pairUp(calls, ids);
  const answering = results.filter((_, index) => answers[index] >= 0);
  if (answering.length === calls.length) return [assistant, ...answering];
  const answered = new Set(answers.map((call) => calls[call]));
  const left = blocks.filter((_, index) => callBlocks[index] === undefined || answered.has(callBlocks[index]));
  if (!left.some((block) => saysSomething(parse(text, block.start, block.end)))) return [];
  return [{ ...assistant, text: withBlocks(text, content as Range, left), inPart: true }, ...answering];
}

/** Returns whether a block is enough for a message. Thoughts alone are not: providers refuse them. */
function saysSomething(block: unknown): boolean {
  const { type, text } = (block ?? {}) as { type?: unknown; text?: unknown };
  return type === "text" ? text !== "" : type !== "thinking" && type !== "redactedThinking";
}

function memberRange(text: Uint8Array, name: string): Range | undefined {
  return findMember(getMembers(text) ?? [], name);
}

/** Returns the text of a message with only these blocks of its content, their bytes as they were. */
function withBlocks(text: Uint8Array, content: Range, blocks: readonly Range[]): Uint8Array {
  const parts: Uint8Array[] = [text.subarray(0, content.start), toBytes("[")];
  for (const [index, block] of blocks.entries()) {
    if (index > 0) parts.push(toBytes(","));
    parts.push(text.subarray(block.start, block.end));
  }
  return concat([...parts, toBytes("]"), text.subarray(content.end)]);
}
