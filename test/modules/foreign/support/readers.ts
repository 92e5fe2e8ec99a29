/**
 * The rules by which Claude Code and Codex read their files, as documented, without any code of ours: the messages that
 * a provider gets.
 */

import type { Fields as Value } from "../../../support/foreign/writing.ts";

function objectsIn(text: string): Value[] {
  const lines = text.split("\n");
  if (lines.pop() !== "") throw new Error("the last line has no line feed");
  return lines.map((line) => JSON.parse(line) as Value);
}

function blocksIn(content: unknown): Value[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : (content as Value[]);
}

/** A file of Claude Code's: records that name the one before them, and the leaf. */
export class ClaudeReader {
  readonly records: readonly Value[];
  private readonly byUuid = new Map<string, Value>();

  constructor(text: string) {
    this.records = objectsIn(text);
    for (const record of this.records) if (typeof record.uuid === "string") this.byUuid.set(record.uuid, record);
  }

  get leaf(): string | undefined {
    const prompt = this.records.findLast(({ type, explicit }) => type === "last-prompt" && explicit === true);
    return prompt?.leafUuid as string | undefined;
  }

  /** The records that no other continues. */
  get ends(): string[] {
    const parents = new Set(this.records.map(({ parentUuid }) => parentUuid));
    return [...this.byUuid.keys()].filter((uuid) => !parents.has(uuid) && !this.isBoundaryParent(uuid));
  }

  private isBoundaryParent(uuid: string): boolean {
    return this.records.some(({ logicalParentUuid }) => logicalParentUuid === uuid);
  }

  /** Returns the messages at a record: up to the last boundary, its summary first, then the messages it keeps. */
  messagesAt(uuid: string): Value[] {
    const chain = this.chain(uuid);
    const [boundary] = chain;
    const { preservedSegment: segment } = (boundary?.compactMetadata ?? {}) as { preservedSegment?: Value };
    if (segment) {
      const kept = this.chain(segment.tailUuid as string);
      const from = kept.findIndex((record) => record.uuid === segment.headUuid);
      if (from < 0) throw new Error("the kept segment does not lead from its tail to its head");
      const anchor = chain.findIndex((record) => record.uuid === segment.anchorUuid);
      if (anchor < 0) throw new Error("the anchor is not in the chain");
      chain.splice(anchor + 1, 0, ...kept.slice(from));
    }
    const isSeen = ({ type, isVisibleInTranscriptOnly: hidden, isCompactSummary }: Value): boolean =>
      (type === "user" || type === "assistant") && (hidden !== true || isCompactSummary === true);
    return chain.filter(isSeen).map(({ message }) => message as Value);
  }

  private chain(uuid: string): Value[] {
    const chain: Value[] = [];
    for (let at = this.byUuid.get(uuid); at; at = this.byUuid.get(at.parentUuid as string)) {
      if (chain.length > this.records.length) throw new Error("a circle");
      chain.push(at);
      if (at.parentUuid === null) return chain.reverse();
    }
    throw new Error("a parent is missing");
  }
}

/** Returns why a provider refuses messages of Claude's; null where it does not. */
export function claudeFault(messages: readonly Value[]): string | null {
  let open: string[] = [];
  const ids = new Set<string>();
  for (const [n, { role, content }] of messages.entries()) {
    const blocks = blocksIn(content);
    if (blocks.length === 0) return `message ${n} is empty`;
    for (const { type, text, id, name, tool_use_id: answered, input } of blocks) {
      if (type === "tool_result") {
        if (role !== "user" || !open.includes(answered as string))
          return `message ${n} answers ${answered}, which is not open`;
        open = open.filter((one) => one !== answered);
        continue;
      }
      if (role === "user" && open.length > 0) return `message ${n} comes before the results of ${open}`;
      if (type === "text" && (text as string).trim() === "") return `message ${n} has a text without text`;
      if (type !== "tool_use") continue;
      if (ids.has(id as string) || !/^[\w-]{1,64}$/.test(id as string)) return `message ${n}: the id ${id}`;
      if (!/^[\w-]{1,64}$/.test(name as string) || typeof input !== "object")
        return `message ${n}: the call of ${name}`;
      ids.add(id as string);
    }
    if (role !== "assistant") continue;
    if (open.length > 0) return `message ${n} comes before the results of ${open}`;
    open = blocks.filter(({ type }) => type === "tool_use").map(({ id }) => id as string);
    if (["thinking", "redacted_thinking"].includes(blocks.at(-1)?.type as string))
      return `message ${n} ends with a thought`;
  }
  return open.length > 0 ? `the results of ${open} are missing at the end` : null;
}

/** Returns the items that Codex goes on with: those of the last compaction, and what came after it. */
export function codexHistory(text: string): Value[] {
  let history: Value[] = [];
  const [first, ...lines] = objectsIn(text);
  if (first.type !== "session_meta") throw new Error("the first line is not about the session");
  for (const { type, payload } of lines) {
    const { replacement_history: again } = payload as Value;
    if (type === "response_item") history.push(payload as Value);
    if (type === "compacted") history = [...(again as Value[])];
  }
  return history;
}

/** Returns why a provider refuses items of Codex's; null where it does not. */
export function codexFault(items: readonly Value[]): string | null {
  const open = new Set<unknown>();
  const ids = new Set<unknown>();
  for (const [n, { type, role, call_id: call, name, arguments: args }] of items.entries()) {
    if (type === "function_call") {
      if (ids.has(call) || typeof call !== "string" || !/^.{1,64}$/.test(call)) return `item ${n}: the id ${call}`;
      if (!/^[\w-]{1,64}$/.test(name as string) || typeof JSON.parse(args as string) !== "object")
        return `item ${n}: the call of ${name}`;
      ids.add(call);
      open.add(call);
    } else if (type === "function_call_output") {
      if (!open.delete(call)) return `item ${n} answers ${call}, which is not open`;
    } else if (open.size > 0 && (type !== "message" || role !== "assistant") && type !== "reasoning")
      return `item ${n} comes before the results of ${[...open]}`;
  }
  return open.size > 0 ? `the results of ${[...open]} are missing at the end` : null;
}

/** Returns everything that is said in messages or items, text after text, whatever carries it. */
export function wordsIn(value: unknown): string[] {
  const words: string[] = [];
  const visit = (one: unknown): void => {
    if (Array.isArray(one)) return one.forEach(visit);
    if (typeof one !== "object" || one === null) return;
    const { role, type, content, text, output, summary, encrypted_content: encrypted } = one as Value;
    if (type === "thinking" || type === "redacted_thinking" || encrypted !== undefined) return;
    if (type === "tool_use" || type === "toolCall" || type === "function_call") words.push("a call");
    if (role === "compactionSummary" || role === "branchSummary") words.push(summary as string);
    for (const said of [text, output, content]) {
      if (typeof said === "string") words.push(said);
      else visit(said);
    }
  };
  visit(value);
  return words;
}
