/** Verifies a whole session: its damage and its invariants (`verify_session`; reliability cases, guarantee 6). */

import { findBoundaryDamage } from "../context/context.ts";
import { type Damage, makeEntryDamage, NO_DAMAGE } from "../format/damage.ts";
import { type Entry, RUST_TYPES } from "../format/entry.ts";
import { isObject } from "../format/loose.ts";
import { toShownText } from "../format/message.ts";
import { limitMembers } from "../json/few-members.ts";
import { parseAbridged } from "../json/json.ts";
import { completeDraft, findGap, getSpeaker } from "./message-defaults.ts";
import type { Incomplete, Session } from "./session.ts";

export interface Verdict {
  readonly damage: readonly Damage[];
  readonly invariants: Readonly<Record<(typeof INVARIANTS)[number], boolean>>;
  /** Entries that pi_agent_rust does not read; such a session is read-only there. */
  readonly unreadableForRust: readonly { readonly entryId: string; readonly reason: string }[];
  readonly ok: boolean;
}

/** The invariant that each kind of damage breaks, if any. They are reported in this order. */
const BREAKS = {
  bad_header: "headerValid",
  extra_header: "headerValid",
  newer_version: null,
  bad_line: "linesReadable",
  bad_body: "linesReadable",
  torn_tail: "linesReadable",
  missing_id: "linesReadable",
  missing_blob: "linesReadable",
  duplicate_id: "idsUnique",
  missing_parent: "parentsKnown",
  no_parent: null,
  parent_is_call: null,
  cycle: "noCycles",
  incomplete_batch: "batchesComplete",
  invalid_boundary: "boundariesOnPath",
  no_message: "messagesComplete",
  incomplete_message: "messagesComplete",
  ambiguous_leaf: null,
  newer_branch: null,
  dangling_tool_call: null,
  lost_entries: null,
  bad_index: null,
  diverged: null,
  restored_entries: null,
  file_beside: null,
} as const satisfies Record<Damage["kind"], string | null>;

const INVARIANTS = [...new Set(Object.values(BREAKS))].filter((invariant) => invariant !== null);

/** Entries that are verified without a pause: a millisecond of work, or a few when they are large. */
const AT_ONCE = 100;

/** Bytes of an entry beyond which its texts are cut at `SEEN` bytes before parsing: which members it has is verified. */
const LONG = 1 << 20;
const SEEN = 4096;

/**
 * Verifies a session in steps, and yields how many entries it has verified. Reads every entry. Throws storage_failed when
 * the disk refuses.
 */
export function* verifyInSteps(session: Session): Generator<number, Verdict> {
  const { log, tree } = session;
  const found: Damage[] = [];
  const unreadableForRust: { entryId: string; reason: string }[] = [];
  // The required members of entries of a newer version are unknown.
  const count = log.readOnly?.name === "unsupported_version" ? 0 : log.nodes.count;
  for (let position = 0; position < count; position++) {
    if (position > 0 && position % AT_ONCE === 0) yield position;
    const entry = entryAt(session, position);
    const reason = rustRefusal(entry);
    if (reason !== null) unreadableForRust.push({ entryId: log.nodes.id(position), reason });
    const fault = messageFault(entry, log.nodes.id(position));
    // Pi never reads another agent's file.
    if (fault && !(log.foreign && fault.kind === "incomplete_message")) found.push(fault);
    if (!log.nodes.isType(position, "compaction") || tree.lastCompaction(position) !== position) continue;
    const damage = findBoundaryDamage(tree, session, position);
    if (damage) found.push(damage);
  }
  const damage = [...session.diagnostics.filter(({ kind }) => kind !== "invalid_boundary"), ...found];
  const broken = new Set<string | null>(damage.map(({ kind }) => BREAKS[kind]));
  const holds = INVARIANTS.map((invariant) => [invariant, !broken.has(invariant)]);
  return { damage, invariants: Object.fromEntries(holds), unreadableForRust, ok: damage.every(isNoFault) };
}

function entryAt({ log }: Session, position: number): Entry {
  return parseAbridged(limitMembers(log.read(position)), SEEN, LONG) as Entry;
}

/**
 * Remarks on a session that is whole. Pi's reader takes messages that its interface fails on; the others describe the
 * model's view of the conversation, which follows from the entries as they are, so that no repair could change it.
 */
const NO_FAULTS: ReadonlySet<Damage["kind"]> = new Set([
  ...NO_DAMAGE,
  "diverged",
  "restored_entries",
  "newer_branch",
  "ambiguous_leaf",
  "no_parent",
  "invalid_boundary",
  "no_message",
  "incomplete_message",
]);

function isNoFault({ kind }: Damage): boolean {
  return NO_FAULTS.has(kind);
}

function messageFault(entry: Entry, entryId: string): Damage | null {
  // A placeholder for a damaged body, which is reported already.
  if (entry.type !== "message" || entry.damaged === true) return null;
  const { message } = entry;
  if (!isObject(message))
    return makeEntryDamage(entryId, "no_message", "the entry has no message, and the model sees nothing of it");
  const gap = findGap(message);
  if (gap === null) return null;
  const reason = `the message has no ${gap} as Pi reads it, and Pi's interface fails without it; repair_session adds it`;
  return makeEntryDamage(entryId, "incomplete_message", reason);
}

/** Returns the messages of a session that Pi cannot read. Reads every entry. */
export function findIncompleteMessages(session: Session): Incomplete[] {
  const { nodes } = session.log;
  const found: Incomplete[] = [];
  for (let position = 0; position < nodes.count; position++) {
    if (!nodes.isType(position, "message")) continue;
    const entry = entryAt(session, position);
    const damage = messageFault(entry, nodes.id(position));
    if (damage?.kind !== "incomplete_message") continue;
    const speaker = () => getSpeaker(session, nodes.parent(position));
    const time = () => Date.parse(entry.timestamp) || 0;
    found.push({ position, damage, complete: (line) => completeDraft(line, entry, { time, speaker }) });
  }
  return found;
}

const RUST_BLOCKS = new Set(["text", "thinking", "image", "toolCall", "redactedThinking", "media"]);

/** Returns why pi_agent_rust skips an entry, or null (session-format reference, section 8.3). */
function rustRefusal(entry: Entry): string | null {
  if (!RUST_TYPES.has(entry.type)) return `its type is ${entry.type}`;
  if (typeof entry.timestamp !== "string") return "it has no timestamp";
  if (entry.type !== "message") return null;
  const message = entry.message as Record<string, unknown> | null | undefined;
  if (typeof message !== "object" || message === null) return "it has no message";
  const { role, content } = message;
  for (const block of Array.isArray(content) ? content : []) {
    const type = (block as { type?: unknown } | null)?.type;
    if (typeof type !== "string" || !RUST_BLOCKS.has(type))
      return `it has a content block of type ${toShownText(type) || "none"}`;
  }
  if (role === "custom") return typeof content === "string" ? null : "its custom message has blocks instead of text";
  if (role === "bashExecution") return typeof message.exitCode === "number" ? null : "its command has no exit code";
  if (role === "assistant") {
    const { cost } = (message.usage ?? {}) as { cost?: unknown };
    if (typeof message.api !== "string") return "its assistant message has no api";
    return typeof cost === "object" && cost !== null ? null : "its usage has no cost";
  }
  return ["user", "toolResult", "branchSummary", "compactionSummary"].includes(toShownText(role))
    ? null
    : `its message has the role ${toShownText(role) || "none"}`;
}
