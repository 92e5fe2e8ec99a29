/** A session as exported pages show it, in any format. */

import { resolveAttachments } from "../format/attachments.ts";
import { ENTRY_ID } from "../format/entry.ts";
import { getContentText, toPreview, toShownText } from "../format/message.ts";
import { limitMembers } from "../json/few-members.ts";
import { findMember, getMembers, parse } from "../json/json.ts";
import { addTo } from "../lists.ts";
import type { Session } from "../session/session.ts";
import { getBranches } from "./branches.ts";
import { readCarriedTexts } from "./carried.ts";
import { cutEntry, LONGEST_WHOLE } from "./cut.ts";
import { findFolds, type PageFamily, type PageFold, type PageHead, readPageHead } from "./head.ts";
import type { PictureLimit } from "./pictures.ts";

export interface PageEntry {
  /** Unique within the page; -1 for a part that is no entry of its own. */
  readonly number: number;
  /** The number of the nearest entry above it that the page shows, or -1; unknown for an entry sent alone. */
  readonly above?: number;
  /** The name for links: its id, or if that is impossible or belongs to another entry, a text that no id can be. */
  readonly anchor: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly label?: string;
  /** Numbers, from 1, of the branches that start after it. */
  readonly branchesHere: readonly number[];
}

export interface PageBranch {
  /** From 1. */
  readonly number: number;
  readonly active: boolean;
  /** The entry before its first one, if it begins in another branch. */
  readonly from?: number;
  /** Returns the first words of its own part, which are read when they are asked for first. */
  readonly preview: () => string;
  readonly length: number;
  readonly folds: () => readonly PageFold[];
  readonly entries: () => Iterable<PageEntry>;
}

export interface ExportPage {
  readonly title: string;
  readonly isNamed: boolean;
  readonly branches: readonly PageBranch[];
  /** Number of entries of the path before those that it shows. */
  readonly before?: number;
  /** With all branches, the entries outside every branch: labels, for instance, that nothing continues. */
  readonly apart: { readonly length: number; readonly entries: () => Iterable<PageEntry> };
  /** Yields empty pieces until it is there. */
  readonly head: () => Generator<string, PageHead>;
  readonly anchorOf: (position: number) => string;
  /** The position of the leaf, if there is one. */
  readonly leaf?: number;
  /** Returns the position of an entry that the page shows, or -1. */
  readonly find: (entryId: string) => number;
}

/** Characters of an id that is part of an anchor. */
const LONGEST = 1500;

/**
 * Returns the anchor of an entry by its id alone: the id, with codes for characters that no link should have. Undefined
 * for a value that is no name.
 */
export function toAnchorName(id: string): string | undefined {
  if (ENTRY_ID.test(id)) return id;
  if (id === "" || id.length > LONGEST) return undefined;
  return `id.${id.replace(/[^A-Za-z0-9_-]/g, (c) => `.${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}`;
}

/** The branches on a page: every one, the path to the leaf, or its part from the last compaction's kept entry. */
export type PageExtent = "all" | "path" | "recent";

/** Returns the page of a session. `limit`: the limit for its pictures; without it, the page has all. */
export function makeExportPage(
  session: Session,
  extent: PageExtent,
  family?: PageFamily,
  limit?: PictureLimit,
): ExportPage {
  const { log, tree } = session;
  const branches = getBranches(session, extent);
  const all = extent === "all";
  const branchesHere = new Map<number, number[]>();
  for (const [index, { from, active }] of branches.entries())
    if (!active && from >= 0) addTo(branchesHere, from, index + 1);
  const shown = new Uint8Array(tree.nodes.count);
  for (const { own } of branches) for (const position of own) shown[position] = 1;
  const apart = all ? [...session.visible()].filter((position) => shown[position] === 0) : [];
  for (const position of apart) shown[position] = 1;
  const find = (entryId: string): number => {
    const position = session.find(entryId);
    return position >= 0 && shown[position] === 1 ? position : -1;
  };
  const anchorOf = (position: number): string => {
    const id = session.idOrNull(position) ?? "";
    return (find(id) === position ? toAnchorName(id) : undefined) ?? `entry.${position + 1}`;
  };
  const aboveOf = (position: number): number => {
    let above = tree.nodes.parent(position);
    while (above >= 0 && shown[above] === 0) above = tree.nodes.parent(above);
    return above >= 0 ? above : -1;
  };
  const fitted = (body: PageEntry["body"], length: number): PageEntry["body"] => {
    const shown = length > LONGEST_WHOLE ? cutEntry(body) : body;
    return limit ? withinLimit(shown, limit) : shown;
  };
  const entryAt = (position: number): PageEntry => ({
    number: position,
    above: aboveOf(position),
    anchor: anchorOf(position),
    body: fitted(bodyOf(session, position), log.length(position)),
    label: tree.labels.get(position)?.label,
    branchesHere: branchesHere.get(position) ?? [],
  });
  const carriedBy = ({ number, anchor, body }: PageEntry): PageEntry[] => {
    if (body.type !== "compaction") return [];
    return Array.from(readCarriedTexts(session, number), (text, index) => {
      const message = { type: "message", timestamp: body.timestamp, message: parse(limitMembers(text)) };
      const own = { number: -1, anchor: `${anchor}.kept.${index + 1}`, branchesHere: [] };
      return { ...own, body: fitted(message, text.length) };
    });
  };
  return {
    isNamed: session.name !== null,
    title: session.name ?? `Session ${session.id}`,
    branches: branches.map(({ active, from, own }, index) => ({
      number: index + 1,
      active,
      from: from >= 0 ? from : undefined,
      preview: previewer(session, own),
      length: own.length,
      folds: () => findFolds(session, own),
      *entries() {
        for (const position of own) {
          const entry = entryAt(position);
          yield entry;
          // The originals of these copies are before it on the path, and only this extent leaves them out.
          if (extent === "recent") yield* carriedBy(entry);
        }
      },
    })),
    apart: {
      length: apart.length,
      *entries() {
        for (const position of apart) yield entryAt(position);
      },
    },
    before: extent === "recent" ? tree.path().length - branches[0].own.length : 0,
    head: () => readPageHead(session, extent === "recent" ? branches[0].own : tree.path(), family),
    anchorOf,
    leaf: tree.leaf >= 0 ? tree.leaf : undefined,
    find,
  };
}

/** Returns an entry with the pictures that fit the limit. */
function withinLimit(body: PageEntry["body"], limit: PictureLimit): PageEntry["body"] {
  if (body.type === "custom_message") return { ...body, content: limit.fitted(body.content) };
  const { message } = body;
  if (body.type !== "message" || typeof message !== "object" || message === null) return body;
  return { ...body, message: { ...message, content: limit.fitted((message as { content?: unknown }).content) } };
}

/** Returns an entry whose message has its attachments put back. */
function bodyOf(session: Session, position: number): Readonly<Record<string, unknown>> {
  const line = session.line(position);
  const body = parse(limitMembers(line)) as Record<string, unknown>;
  const read = (sha256: string, size: number): string | null => session.log.attachment(position, sha256, size);
  if (body.type === "custom_message")
    return parse(limitMembers(resolveAttachments(line, read))) as Record<string, unknown>;
  if (body.type !== "message") return body;
  const message = findMember(getMembers(line) ?? [], "message");
  if (!message) return body;
  const text = line.subarray(message.start, message.end);
  const whole = resolveAttachments(text, read);
  return whole === text ? body : { ...body, message: parse(limitMembers(whole)) };
}

function previewer(session: Session, positions: readonly number[]): () => string {
  let known: string | undefined;
  return () => {
    known ??= previewOf(session, positions);
    return known;
  };
}

/** Returns the first words of the conversation in these entries. */
function previewOf(session: Session, positions: readonly number[]): string {
  for (const position of positions) {
    const body = session.shownEntry(position);
    const message = body.message as { content?: unknown } | null | undefined;
    const text = toPreview(
      getContentText(message?.content) || getContentText(body.content) || toShownText(body.summary),
    );
    if (text !== "") return text;
  }
  return "";
}
