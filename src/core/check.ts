/** What is right and wrong with a session, read whole (protocol, `verify_session`; reliability cases, guarantee 6). */

import type { Damage } from "./damage.ts";
import type { Entry } from "./entry.ts";
import { shownText } from "./message.ts";
import type { Session } from "./session.ts";

export interface Verdict {
  readonly damage: readonly Damage[];
  readonly invariants: Readonly<Record<Invariant, boolean>>;
  /** Entries that pi_agent_rust does not read; such a session is read-only there. */
  readonly unreadableForRust: readonly { readonly entryId: string; readonly reason: string }[];
  /** No damage. */
  readonly ok: boolean;
}

export type Invariant =
  | "headerValid"
  | "linesReadable"
  | "idsUnique"
  | "parentsKnown"
  | "noCycles"
  | "batchesComplete"
  | "boundariesOnPath";

const BREAKS: Readonly<Record<Damage["kind"], Invariant | undefined>> = {
  bad_line: "linesReadable",
  bad_body: "linesReadable",
  torn_tail: "linesReadable",
  missing_id: "linesReadable",
  bad_header: "headerValid",
  extra_header: "headerValid",
  newer_version: "headerValid",
  duplicate_id: "idsUnique",
  missing_parent: "parentsKnown",
  cycle: "noCycles",
  incomplete_batch: "batchesComplete",
  invalid_boundary: "boundariesOnPath",
  ambiguous_leaf: undefined,
  dangling_tool_call: undefined,
  lost_entries: undefined,
  missing_blob: "linesReadable",
  bad_index: undefined,
};

/** Reads every entry. Throws storage_failed when the disk refuses. */
export function verify(session: Session): Verdict {
  const { log, tree } = session;
  const boundaries: Damage[] = [];
  const unreadableForRust: { entryId: string; reason: string }[] = [];
  for (let position = 0; position < log.nodes.count; position++) {
    const entry = session.entry(position);
    const reason = rustRefusal(entry);
    if (reason !== null) unreadableForRust.push({ entryId: log.nodes.id(position), reason });
    if (!log.nodes.isType(position, "compaction") || tree.lastCompaction(position) !== position) continue;
    if (!session.isBoundaryMisplaced(position)) continue;
    boundaries.push({
      kind: "invalid_boundary",
      line: 0,
      byteOffset: 0,
      length: 0,
      entryId: log.nodes.id(position),
      reason: `the first kept entry ${shownText(entry.firstKeptEntryId)} is not on the path before the compaction; more is kept`,
      salvaged: true,
    });
  }
  const damage = [...session.diagnostics.filter(({ kind }) => kind !== "invalid_boundary"), ...boundaries];
  const broken = new Set(damage.map(({ kind }) => BREAKS[kind]));
  const holds = (invariant: Invariant): boolean => !broken.has(invariant);
  return {
    damage,
    invariants: {
      headerValid: holds("headerValid"),
      linesReadable: holds("linesReadable"),
      idsUnique: holds("idsUnique"),
      parentsKnown: holds("parentsKnown"),
      noCycles: holds("noCycles"),
      batchesComplete: holds("batchesComplete"),
      boundariesOnPath: holds("boundariesOnPath"),
    },
    unreadableForRust,
    ok: damage.length === 0,
  };
}

const RUST_TYPES = new Set([
  "message",
  "model_change",
  "thinking_level_change",
  "compaction",
  "branch_summary",
  "label",
  "session_info",
  "custom",
]);

const RUST_BLOCKS = new Set(["text", "thinking", "image", "toolCall", "redactedThinking", "media"]);

/** Why pi_agent_rust skips an entry, or null (session-format reference, section 8.3). */
function rustRefusal(entry: Entry): string | null {
  if (!RUST_TYPES.has(entry.type)) return `its type is ${entry.type}`;
  if (typeof entry.timestamp !== "string") return "it has no timestamp";
  if (entry.type !== "message") return null;
  const message = entry.message as Record<string, unknown> | null | undefined;
  if (typeof message !== "object" || message === null) return "it has no message";
  const { role, content } = message;
  if (Array.isArray(content))
    for (const block of content) {
      const type = (block as { type?: unknown } | null)?.type;
      if (typeof type !== "string" || !RUST_BLOCKS.has(type))
        return `it has a content block of type ${shownText(type) || "none"}`;
    }
  if (role === "custom") return typeof content === "string" ? null : "its custom message has blocks instead of text";
  if (role === "bashExecution") return typeof message.exitCode === "number" ? null : "its command has no exit code";
  if (role === "assistant") {
    const { cost } = (message.usage ?? {}) as { cost?: unknown };
    if (typeof message.api !== "string") return "its assistant message has no api";
    return typeof cost === "object" && cost !== null ? null : "its usage has no cost";
  }
  return ["user", "toolResult", "branchSummary", "compactionSummary"].includes(shownText(role))
    ? null
    : `its message has the role ${shownText(role) || "none"}`;
}
