/** The compaction that is appended to a session. */

import { type Coming, findBoundaryFault } from "../context/compaction.ts";
import { Failure } from "../failure.ts";
import { type Draft, makeDraft } from "../format/entry.ts";
import { makeTimestamp } from "../ports/env.ts";
import type { Session } from "./session.ts";

/** Returns a compaction at the leaf, with the system prompt in force, which it would hide. Throws invalid_boundary. */
export function makeCompactionDraft(
  session: Session,
  compaction: {
    summary: string;
    firstKeptEntryId: string | null;
    tokensBefore: number;
    details?: unknown;
    usage?: unknown;
    fromHook?: boolean;
  },
): Draft {
  const { firstKeptEntryId } = compaction;
  const id = session.newEntryId();
  if (firstKeptEntryId !== null) requireKept(session, firstKeptEntryId, session.log.nodes.position(firstKeptEntryId));
  const since = makeTimestamp(session.env);
  const systemMessage = foldSystemMessages(systemMessages(session), Date.parse(since));
  return {
    ...makeDraft("compaction", { ...compaction, firstKeptEntryId: firstKeptEntryId ?? id, systemMessage }),
    id,
    timestamp: since,
  };
}

/** Throws invalid_boundary unless a compaction below a leaf can keep from the entry with this id and position. */
export function requireKept(
  session: Session,
  entryId: string,
  first: number,
  at: { leaf?: number; coming?: readonly Coming[]; path?: string } = {},
): void {
  const { leaf = session.tree.leaf, coming, path } = at;
  const fault =
    first < 0
      ? { reason: `Entry not found: ${entryId}. get_path lists the entries to choose from.`, nearest: [] }
      : findBoundaryFault(session.tree, session, leaf, first, coming);
  if (fault) throw new Failure("invalid_boundary", fault.reason, { entryId, nearest: fault.nearest, path });
}

function systemMessages(session: Session): object[] {
  const messages: object[] = [];
  for (const { position, kind } of session.context().items) {
    if (
      kind === "summary" ||
      kind === "retained" ||
      (kind === "message" && session.log.nodes.role(position) !== "system")
    )
      continue;
    const entry = session.entry(position);
    const message = kind === "system" ? entry.systemMessage : entry.message;
    if (typeof message === "object" && message !== null) messages.push(message);
  }
  return messages;
}

type SystemPatch = Readonly<Partial<Record<"content" | "sections" | "toolsAdded" | "toolsRemoved", unknown>>>;

/**
 * Merges system messages, in order, into one with the `timestamp` in milliseconds; undefined for an empty list. In Pi 1.5
 * they patch each other; a compaction contains them merged, because it leaves out the ones before it (session-format
 * reference, sections 2 and 3).
 */
function foldSystemMessages(patches: readonly SystemPatch[], timestamp: number) {
  if (patches.length === 0) return undefined;
  const texts: string[] = [];
  const sections = new Map<string, unknown>();
  const tools = new Map<unknown, unknown>();
  for (const patch of patches) {
    const text = textOfPrompt(patch.content);
    if (text !== "") texts.push(text);
    if (typeof patch.sections === "object" && patch.sections !== null)
      for (const [name, value] of Object.entries(patch.sections))
        if (value === null) sections.delete(name);
        else sections.set(name, value);
    for (const tool of listOf(patch.toolsRemoved)) tools.delete(nameOf(tool));
    for (const tool of listOf(patch.toolsAdded)) tools.set(nameOf(tool), tool);
  }
  return {
    role: "system" as const,
    content: texts.join("\n\n"),
    ...(sections.size > 0 ? { sections: Object.fromEntries(sections) } : {}),
    ...(tools.size > 0 ? { toolsAdded: [...tools.values()] } : {}),
    timestamp,
  };
}

function textOfPrompt(content: unknown): string {
  if (typeof content === "string") return content;
  const texts = listOf(content).map((block) => (block as { text?: unknown } | null)?.text);
  return texts.filter((text) => typeof text === "string").join("\n");
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function nameOf(tool: unknown): unknown {
  return (tool as { name?: unknown } | null)?.name;
}
