/** A session as plain objects: the simplest thing that follows the session format, to compare the core with. */

import { TIME } from "./lines.ts";
import type { Random } from "./random.ts";

export interface ModelEntry {
  type: string;
  id: string;
  parentId: string | null;
  timestamp: string;
  [member: string]: unknown;
}

const TIME_MS = Date.parse(TIME);

export class Model {
  readonly entries: ModelEntry[] = [];
  readonly byId = new Map<string, ModelEntry>();

  add(entry: ModelEntry): void {
    this.entries.push(entry);
    this.byId.set(entry.id, entry);
  }

  get(id: string): ModelEntry {
    return this.byId.get(id) as ModelEntry;
  }

  lines(): string[] {
    return this.entries.map((entry) => JSON.stringify(entry));
  }

  /** Entries from the root to `leaf`. */
  path(leaf: string | null): ModelEntry[] {
    const path: ModelEntry[] = [];
    for (let at = leaf; at !== null; at = this.get(at).parentId) path.unshift(this.get(at));
    return path;
  }

  children(id: string | null): ModelEntry[] {
    return this.entries.filter((entry) => entry.parentId === id);
  }

  /** Labels by target, the last in file order. */
  labels(): Map<string, { label: string; timestamp: string }> {
    const labels = new Map<string, { label: string; timestamp: string }>();
    for (const { type, targetId, label, timestamp } of this.entries) {
      if (type !== "label" || !this.byId.has(targetId as string)) continue;
      if (typeof label === "string" && label !== "") labels.set(targetId as string, { label, timestamp });
      else labels.delete(targetId as string);
    }
    return labels;
  }

  /** The messages a model sees at `leaf` (session-format reference, section 3). */
  context(leaf: string | null): unknown[] {
    const path = this.path(leaf);
    const counts = (entry: ModelEntry) => entry.type === "compaction" && typeof entry.summary === "string";
    const at = path.findLastIndex(counts);
    if (at < 0) return this.messages(path, path);
    const compaction = path[at];
    const before = path.slice(0, at);
    let kept = before.slice(before.findLastIndex(counts) + 1);
    if (compaction.firstKeptEntryId === compaction.id) kept = [];
    else {
      const first = before.findIndex((entry) => entry.id === compaction.firstKeptEntryId);
      if (first >= 0) kept = before.slice(first);
    }
    const after = path.slice(at + 1);
    const shown = [...kept, ...after];
    const { systemMessage, summary, tokensBefore } = compaction;
    const edit = after.findLast((entry) => entry.type === "context_edit" && entry.targetId === compaction.id);
    const entries = [
      ...(systemMessage ? [systemMessage] : []),
      { role: "compactionSummary", summary, tokensBefore, timestamp: TIME_MS },
    ];
    return [
      ...(edit?.replacement === null ? [] : entries),
      ...this.messages(
        kept.filter((entry) => (entry.message as { role?: string } | null | undefined)?.role !== "system"),
        shown,
      ),
      ...this.messages(after, shown),
    ];
  }

  private messages(entries: ModelEntry[], shown: ModelEntry[]): unknown[] {
    const edits = new Map<string, ModelEntry>();
    for (const entry of shown) if (entry.type === "context_edit") edits.set(entry.targetId as string, entry);
    return entries.flatMap((entry) => {
      const message = messageOf(entry);
      const edit = edits.get(entry.id);
      if (message === undefined || edit?.replacement === null) return [];
      if (edit === undefined || !EDITABLE.includes(message.role as string)) return [message];
      let { content } = edit.replacement as { content: unknown };
      if (typeof content === "string" && ["assistant", "toolResult"].includes(message.role as string))
        content = [{ type: "text", text: content }];
      return [{ ...message, content }];
    });
  }

  model(leaf: string | null): { provider: string; id: string } | null {
    for (const entry of this.path(leaf).reverse()) {
      const { provider, modelId } = entry;
      if (entry.type === "model_change") return { provider: provider as string, id: modelId as string };
      const message = entry.message as { role?: string; provider?: string; model?: string } | null | undefined;
      if (entry.type === "message" && message?.role === "assistant" && message.provider !== undefined)
        return { provider: message.provider, id: message.model as string };
    }
    return null;
  }

  level(leaf: string | null): string {
    const change = this.path(leaf).findLast((entry) => entry.type === "thinking_level_change");
    return (change?.thinkingLevel as string | undefined) ?? "off";
  }
}

/** Roles whose content an edit replaces. */
const EDITABLE = ["user", "assistant", "toolResult", "custom"];

function hasSummary(entry: ModelEntry): boolean {
  return typeof entry.summary === "string" && entry.summary !== "";
}

function messageOf(entry: ModelEntry): Record<string, unknown> | undefined {
  const { type, summary, fromId, customType, content, display, details } = entry;
  if (type === "branch_summary")
    return hasSummary(entry) ? { role: "branchSummary", summary, fromId, timestamp: TIME_MS } : undefined;
  if (type === "custom_message")
    return JSON.parse(JSON.stringify({ role: "custom", customType, content, display, details, timestamp: TIME_MS }));
  if (type !== "message" || !entry.message) return undefined;
  const message = entry.message as Record<string, unknown>;
  if (["user", "assistant", "toolResult"].includes(message.role as string) && (message.content ?? null) === null)
    return { ...message, content: [] };
  if (message.role === "system" && (message.content ?? null) === null) return { ...message, content: "" };
  return message;
}

/** The composition of a random session. */
interface Mixture {
  readonly entries: number;
  /** Share of entries that do not continue the one before. */
  readonly branching?: number;
  readonly compactions?: boolean;
  readonly edits?: boolean;
  readonly labels?: boolean;
}

/** A session with random entries of every type, whose references may be right or wrong as they come. */
export function randomModel(random: Random, mixture: Mixture): Model {
  const model = new Model();
  let last: string | null = null;
  for (let n = 0; n < mixture.entries; n++) {
    let parentId = last;
    if (model.entries.length > 0 && random.chance(mixture.branching ?? 0.15))
      parentId = random.chance(0.1) ? null : random.pick(model.entries).id;
    const id = (random.int(0x10000) * 0x10000 + n).toString(16).padStart(8, "0");
    const type = random.pick(typesOf(mixture));
    model.add({ type, id, parentId, timestamp: TIME, ...rest(random, model, type, id, parentId) } as ModelEntry);
    last = id;
  }
  return model;
}

function typesOf({ compactions = true, edits = true, labels = true }: Mixture): string[] {
  const types = ["custom", "custom_message", "model_change", "unheard_of", "thinking_level_change", "branch_summary"];
  types.push("session_info", "usage", ...Array(6).fill("message"));
  if (compactions) types.push("compaction");
  if (edits) types.push("context_edit", "context_edit");
  if (labels) types.push("label", "label");
  return types;
}

function rest(random: Random, model: Model, type: string, id: string, parentId: string | null): object {
  const anyId = (): string => (model.entries.length === 0 ? "nowhere0" : random.pick(model.entries).id);
  const path = model.path(parentId);
  const onPath = (): string => (path.length === 0 ? anyId() : random.pick(path).id);
  const text = `text ${random.hex(4)}`;
  const sometimes = (chance: number, members: object): object => (random.chance(chance) ? members : {});
  const made: Record<string, () => object> = {
    message: () => ({ message: randomMessage(random, text) }),
    custom: () => ({ customType: "thing", data: { count: random.int(9) } }),
    custom_message: () => ({
      ...{ customType: "thing", content: text, display: random.chance(0.5) },
      ...sometimes(0.3, { details: {} }),
    }),
    model_change: () => ({ provider: "openai", modelId: `model-${random.int(9)}` }),
    thinking_level_change: () => ({ thinkingLevel: random.pick(["off", "low", "high"]) }),
    branch_summary: () => ({ fromId: anyId(), summary: random.chance(0.2) ? "" : text }),
    session_info: () => ({ name: text }),
    usage: () => ({ kind: "summary", provider: "openai", model: "m", usage: { totalTokens: 3 } }),
    label: () => ({ targetId: random.chance(0.9) ? anyId() : "nowhere0", ...sometimes(0.8, { label: text }) }),
    context_edit: () => ({
      targetId: random.chance(0.8) ? onPath() : anyId(),
      replacement: random.chance(0.4) ? null : { content: random.chance(0.5) ? text : [{ type: "text", text }] },
    }),
    compaction: () => ({
      summary: random.pick<unknown>([text, text, text, text, text, text, "", null]),
      firstKeptEntryId: random.chance(0.7) ? onPath() : random.pick([id, anyId(), "nowhere0"]),
      tokensBefore: random.int(9999),
      ...sometimes(0.2, { systemMessage: { role: "system", content: text } }),
    }),
    unheard_of: () => ({ anything: [1, text] }),
  };
  return made[type]();
}

function randomMessage(random: Random, text: string): unknown {
  const blocks = [{ type: "text", text }];
  return random.pick<unknown>([
    { role: "user", content: text },
    { role: "user", content: blocks, timestamp: TIME_MS },
    { role: "user" },
    { role: "assistant", content: blocks, provider: "anthropic", model: `model-${random.int(9)}`, usage: {} },
    { role: "assistant", content: [{ type: "toolCall", id: "call", name: "bash", arguments: {} }] },
    { role: "assistant", content: null },
    { role: "toolResult", toolCallId: "call", toolName: "bash", content: blocks, isError: false },
    { role: "system", content: text },
    { role: "system" },
    { role: "custom", customType: "thing", content: text },
    { role: "bashExecution", command: "ls", output: text, cancelled: false, truncated: false },
    { role: "unheard_of", payload: text },
    null,
  ]);
}
