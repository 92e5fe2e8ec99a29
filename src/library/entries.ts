/** Pi's functions over entries that a caller holds, on the core's tree, context and migration. */

import {
  type Bodies,
  type ContextItem,
  getContext,
  getContextSpan,
  getMessageText,
  getModelAt,
  getThinkingLevelAt,
  isVoid,
  type Model,
  type Span,
} from "../core/context/context.ts";
import { CURRENT_VERSION, type Entry } from "../core/format/entry.ts";
import { HeadReader } from "../core/format/node-reader.ts";
import { deriveLineId, migrateV1, migrateV2 } from "../core/format/older-versions.ts";
import { decodeText, parse, parseText, toBytes } from "../core/json/json.ts";
import { addTo } from "../core/lists.ts";
import { Nodes, ROOT } from "../core/tree/nodes.ts";
import { Tree } from "../core/tree/tree.ts";
import { absolutePath, disk, env, readAt, scanLines, useFile } from "./here.ts";
import type {
  AgentMessage,
  CompactionEntry,
  FileEntry,
  SessionContext,
  SessionEntry,
  SessionProjection,
} from "./types.ts";

// --- contexts --------------------------------------------------------------------------------------------------

/** Entries in a caller's array as a tree with bodies. */
class ArrayEntries implements Bodies {
  readonly tree: Tree;
  /** The leaf as Pi's functions find it: an unknown id and a missing one mean the last entry. */
  readonly leaf: number;
  private readonly entries: readonly SessionEntry[];

  constructor(
    entries: readonly SessionEntry[],
    leafId: string | null | undefined,
    byId: ReadonlyMap<string, SessionEntry> | undefined,
  ) {
    this.entries = byId ? [...byId.values()] : entries;
    const nodes = new Nodes();
    const heads = new HeadReader(nodes);
    for (const entry of this.entries) {
      heads.readValue(entry as Entry, () => `~${nodes.count}`);
      nodes.add(heads);
    }
    nodes.cutCycles();
    this.tree = new Tree(nodes, { isVoid: (position) => isVoid(this.entry(position)) });
    const last = entries.at(-1);
    const named = typeof leafId === "string" ? nodes.position(leafId) : -1;
    if (leafId === null || !last) this.leaf = ROOT;
    else if (named >= 0) this.leaf = named;
    else this.leaf = byId ? nodes.position(last.id) : entries.length - 1;
  }

  line(position: number): Uint8Array {
    return toBytes(JSON.stringify(this.entries[position]));
  }

  entry(position: number): Entry {
    return this.entries[position] as Entry;
  }
}

/** Returns one message of a context; undefined when its bytes are damaged. */
function messageOf(tree: Tree, bodies: Bodies, item: ContextItem): AgentMessage | undefined {
  if (item.kind === "message" && item.edit === undefined && tree.nodes.isType(item.position, "message")) {
    const message = bodies.entry(item.position).message as AgentMessage & { content?: unknown };
    // Returned as it is in its entry; a message without content may need some.
    if (message?.content !== undefined && message.content !== null) return message;
  }
  const text = getMessageText(tree, bodies, item);
  return text && (parse(text) as AgentMessage);
}

/** Returns the entries of a span, the compaction in force first. */
export function spanEntries({ compaction, kept, after }: Span): number[] {
  return compaction === ROOT ? [...after] : [compaction, ...kept, ...after];
}

/** Returns a context with the source entry of each message. */
export function projection(
  tree: Tree,
  bodies: Bodies,
  leaf: number,
  model: Model | null,
  thinkingLevel: string,
): SessionProjection {
  const messages: AgentMessage[] = [];
  const bySource = new Map<number, AgentMessage[]>();
  const context = getContext(tree, bodies, leaf);
  for (const item of context.items) {
    const message = messageOf(tree, bodies, item);
    if (!message) continue;
    messages.push(message);
    addTo(bySource, item.position, message);
  }
  const entries = spanEntries(context).map((position) => ({
    sourceEntry: bodies.entry(position) as SessionEntry,
    messages: bySource.get(position) ?? [],
  }));
  return { entries, messages, thinkingLevel, model: model && { provider: model.provider, modelId: model.id } };
}

/**
 * Returns the entries of the path to a leaf that make its context: the latest compaction, the entries that it keeps,
 * and those after it. Without an id the leaf is the last entry; null is the place before the first.
 */
export function buildContextEntries(
  entries: SessionEntry[],
  leafId?: string | null,
  byId?: Map<string, SessionEntry>,
): SessionEntry[] {
  const at = new ArrayEntries(entries, leafId, byId);
  return spanEntries(getContextSpan(at.tree, at, at.leaf)).map((position) => at.entry(position) as SessionEntry);
}

/** Does the same as {@link buildSessionContext}, and returns the source entry of each message. */
export function buildSessionProjection(
  entries: SessionEntry[],
  leafId?: string | null,
  byId?: Map<string, SessionEntry>,
): SessionProjection {
  const at = new ArrayEntries(entries, leafId, byId);
  const { leaf } = at;
  return projection(at.tree, at, leaf, getModelAt(at.tree, at, leaf), getThinkingLevelAt(at.tree, at, leaf) ?? "off");
}

/** Returns the model's view at a leaf, which is found as in {@link buildContextEntries}. */
export function buildSessionContext(
  entries: SessionEntry[],
  leafId?: string | null,
  byId?: Map<string, SessionEntry>,
): SessionContext {
  const { messages, thinkingLevel, model } = buildSessionProjection(entries, leafId, byId);
  return { messages, thinkingLevel, model };
}

/** Returns the messages that one entry contributes by itself. */
export function sessionEntryToContextMessages(entry: SessionEntry): AgentMessage[] {
  return buildSessionProjection([{ ...entry, parentId: null }]).messages;
}

export function getLatestCompactionEntry(entries: SessionEntry[]): CompactionEntry | null {
  return entries.findLast((entry) => entry.type === "compaction") ?? null;
}

// --- files -----------------------------------------------------------------------------------------------------

/** Parses the content of a session file as it is written; lines that are not JSON objects are left out. */
export function parseSessionEntries(content: string): FileEntry[] {
  const entries: FileEntry[] = [];
  for (const line of content.replace(/^\ufeff/, "").split("\n")) addLine(entries, line);
  return entries;
}

function addLine(entries: FileEntry[], line: string | Uint8Array): void {
  try {
    const text = typeof line === "string" ? line : decodeText(line).replace(/^\ufeff/, "");
    if (text.trim() === "") return;
    const value = parseText(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) entries.push(value as FileEntry);
  } catch {
    // SessionManager.open reports a line that is not JSON or not UTF-8; this function does not.
  }
}

/** Does the same for a file of any size; an empty list for a missing file, or no session. Throws errno errors. */
export function loadEntriesFromFile(filePath: string): FileEntry[] {
  const entries: FileEntry[] = [];
  try {
    useFile(disk, disk.openRead(absolutePath(filePath)), (fd) => {
      const addAt = (start: number, length: number): void => addLine(entries, readAt(disk, fd, start, length));
      const { tail, size } = scanLines(disk, fd, 0, 0, {
        line: (_number, _start, b, at, end) => addLine(entries, b.subarray(at, end)),
        long: (_number, start, length) => addAt(start, length),
      });
      if (tail < size) addAt(tail, size - tail);
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  const header = entries.at(0);
  return header?.type === "session" && typeof header.id === "string" ? entries : [];
}

/**
 * Raises entries of version 1 or 2, with their header, to version 3, in place. Ids given to version 1 are the same at
 * every call, and the same as from `SessionManager.open` if the file is written compactly.
 */
export function migrateSessionEntries(entries: FileEntry[]): void {
  const header = entries.find((entry) => entry.type === "session");
  const version = header?.version ?? 1;
  if (version >= CURRENT_VERSION) return;
  const ids: (string | undefined)[] = [];
  const taken = new Set<string>();
  let parentId: string | null = null;
  for (const [index, entry] of entries.entries()) {
    ids.push(undefined);
    if (entry.type === "session") {
      entry.version = CURRENT_VERSION;
      continue;
    }
    const line = toBytes(JSON.stringify(entry));
    let migrated: Uint8Array;
    if (version < 2) {
      const moved = migrateV1(line, {
        makeId: () => deriveLineId(index + 1, line, env.sha256, (id) => taken.has(id)),
        lastId: parentId,
        idAt: (at) => ids[at],
      });
      parentId = moved.id;
      taken.add(moved.id);
      ids[index] = moved.id;
      migrated = moved.line;
    } else migrated = migrateV2(line);
    if (migrated === line) continue;
    const members = parse(migrated) as SessionEntry;
    for (const name of Object.keys(entry)) if (!Object.hasOwn(members, name)) Reflect.deleteProperty(entry, name);
    Object.assign(entry, members);
  }
}
