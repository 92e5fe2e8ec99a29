/**
 * Members that Pi relies on in messages. It reads usage, cost and content without checking that they exist, and its
 * interface ends with a TypeError if they do not (0.73: `entry.message.usage.input`, `message.content.some`).
 */

import type { Model } from "../context/context.ts";
import { UNKNOWN_MODEL } from "../context/models.ts";
import { type Draft, setMembers } from "../format/entry.ts";
import { isObject } from "../format/loose.ts";
import { getToolCalls, wrapInTextBlock } from "../format/message.ts";
import { concat, findMember, getMembers, type Range, toBytes } from "../json/json.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Session } from "./session.ts";

type Members = Readonly<Record<string, unknown>>;

/** The model that speaks at a position, with the API that its last message names. */
type Speaker = Model & { readonly api?: string };

interface Surroundings {
  time(): number;
  speaker(): Speaker | null;
}

/** Returns the first member that Pi requires and a message lacks, or null. */
export function findGap(message: Members): string | null {
  const { role, content, usage } = message;
  if (role !== "user" && role !== "assistant" && role !== "toolResult") return null;
  if (!Array.isArray(content) && !(role === "user" && typeof content === "string")) return "content";
  if (role !== "assistant") return null;
  if (!isObject(usage)) return "usage";
  return isObject(usage.cost) ? null : "usage.cost";
}

/**
 * Returns the text of a draft, its message completed with the members that Pi needs and it lacks: content, and in an
 * assistant message `usage`, `stopReason`, `timestamp`, `provider`, `model` and `api`. Text where blocks belong becomes
 * one block; everything else stays byte for byte. Returns the same bytes if nothing is missing. `draft` is its value.
 */
export function completeDraft(text: Uint8Array, draft: Members, around: Surroundings): Uint8Array {
  if (draft.type !== "message" || !isObject(draft.message)) return text;
  // Most messages lack nothing, and their text need not be looked through.
  let found: Range | undefined;
  const messageText = (): Uint8Array => {
    found ??= findMember(getMembers(text) ?? [], "message");
    return found ? text.subarray(found.start, found.end) : EMPTY;
  };
  const lacking = lackingOf(messageText, draft.message, around);
  if (Object.keys(lacking).length === 0) return text;
  const completed = setMembers(messageText(), lacking);
  return found ? concat([text.subarray(0, found.start), completed, text.subarray(found.end)]) : text;
}

function lackingOf(text: () => Uint8Array, message: Members, around: Surroundings): Record<string, Uint8Array> {
  const { role, content } = message;
  const lacking: Record<string, Uint8Array> = {};
  const put = (name: string, value: unknown): void => {
    lacking[name] = toBytes(JSON.stringify(value));
  };
  if (role !== "user" && role !== "assistant" && role !== "toolResult") return lacking;
  if (role !== "user" && typeof content === "string") lacking.content = wrapInTextBlock(valueIn(text(), "content"));
  else if (!Array.isArray(content) && typeof content !== "string") put("content", []);
  if (role !== "assistant") return lacking;
  const { provider, model, api } = message;
  if (typeof provider !== "string" || typeof model !== "string" || typeof api !== "string") {
    const speaker = around.speaker();
    const same =
      speaker && (provider ?? speaker.provider) === speaker.provider && (model ?? speaker.id) === speaker.id
        ? speaker
        : UNKNOWN_MODEL;
    if (typeof api !== "string") put("api", (same as Speaker).api ?? UNKNOWN_MODEL.provider);
    if (typeof provider !== "string") put("provider", same.provider);
    if (typeof model !== "string") put("model", same.id);
  }
  const usage = usageText(text, message.usage);
  if (usage) lacking.usage = usage;
  if (typeof message.stopReason !== "string") put("stopReason", getToolCalls(content).length > 0 ? "toolUse" : "stop");
  if (typeof message.timestamp !== "number") put("timestamp", around.time());
  return lacking;
}

const COUNTS = ["input", "output", "cacheRead", "cacheWrite"];
const COSTS = [...COUNTS, "total"];

/** Returns the usage of a message with its missing members added; undefined if it lacks nothing. */
function usageText(message: () => Uint8Array, usage: unknown): Uint8Array | undefined {
  const given: Members = isObject(usage) ? usage : {};
  const lacking: Record<string, Uint8Array> = {};
  let total = 0;
  for (const name of COUNTS)
    if (typeof given[name] === "number") total += given[name];
    else lacking[name] = ZERO;
  if (typeof given.totalTokens !== "number") lacking.totalTokens = toBytes(String(total));
  const { cost } = given;
  const missing = COSTS.filter((name) => !isObject(cost) || typeof cost[name] !== "number");
  if (missing.length === 0 && Object.keys(lacking).length === 0) return undefined;
  const text = isObject(usage) ? valueIn(message(), "usage") : EMPTY;
  if (missing.length > 0) {
    const zeros = Object.fromEntries(missing.map((name) => [name, ZERO]));
    // Some writers give only the sum.
    if (typeof cost === "number") zeros.total = valueIn(text, "cost");
    lacking.cost = setMembers(isObject(cost) ? valueIn(text, "cost") : EMPTY, zeros);
  }
  return setMembers(text, lacking);
}

const EMPTY = toBytes("{}");
const ZERO = toBytes("0");

function valueIn(object: Uint8Array, name: string): Uint8Array {
  const member = findMember(getMembers(object) ?? [], name);
  return member ? object.subarray(member.start, member.end) : EMPTY;
}

export function getSpeaker(session: Session, position: number): Speaker | null {
  const model = session.model(position);
  const named = session.tree.lastModel(position);
  if (!model || named < 0) return model;
  const { message } = session.entry(named);
  if (!isObject(message) || typeof message.api !== "string") return model;
  return message.provider === model.provider && message.model === model.id ? { ...model, api: message.api } : model;
}

/** The models that speak before each of several drafts, which can change it. Reads nothing until asked. */
export class Speakers {
  private readonly session: Session;
  private now: () => Speaker | null;
  private readonly known = new Map<string, () => Speaker | null>();

  constructor(session: Session) {
    this.session = session;
    this.now = this.at(session.tree.leaf);
  }

  /** Adds the next draft, and returns a function that finds the speaker before it. */
  next(draft: Pick<Draft, "type" | "id" | "parentId"> & Members): () => Speaker | null {
    const { type, id, parentId, message } = draft;
    if (parentId !== undefined) {
      const stored = parentId === null ? ROOT : this.session.log.nodes.position(parentId);
      this.now = this.known.get(parentId ?? "") ?? this.at(stored);
    }
    const before = this.now;
    const assistant = type === "message" && isObject(message) && message.role === "assistant" ? message : undefined;
    const provider = type === "model_change" ? draft.provider : assistant?.provider;
    const model = type === "model_change" ? draft.modelId : assistant?.model;
    if (typeof provider === "string" && typeof model === "string") {
      const api = assistant && typeof assistant.api === "string" ? { api: assistant.api } : {};
      this.now = () => ({ provider, id: model, ...api });
    }
    if (id !== undefined) this.known.set(id, this.now);
    return before;
  }

  private at(position: number): () => Speaker | null {
    let speaker: Speaker | null | undefined;
    return () => (speaker ??= getSpeaker(this.session, position));
  }
}
