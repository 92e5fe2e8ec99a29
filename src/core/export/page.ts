/** A session as exported pages show it, in any format. */

import { withAttachments } from "../format/attachments.ts";
import { contentText, preview, shownText } from "../format/message.ts";
import { memberOf, members, parse } from "../json/json.ts";
import type { Session } from "../session/session.ts";
import { branchesOf } from "./branches.ts";

export interface PageEntry {
  /** Unique within the page. */
  readonly number: number;
  readonly body: Readonly<Record<string, unknown>>;
  readonly label?: string;
  /** Numbers, from 1, of the branches that start after it. */
  readonly branchesHere: readonly number[];
}

export interface PageBranch {
  /** From 1. */
  readonly number: number;
  readonly active: boolean;
  /** The entry after which it starts, if it begins in another branch. */
  readonly from?: number;
  /** The first words of its own part. */
  readonly preview: string;
  /** Whether it is the current one, and the number of entries in its own part. */
  readonly facts: string;
  readonly entries: () => Iterable<PageEntry>;
}

export interface ExportPage {
  readonly title: string;
  /** Pairs of name and value. */
  readonly facts: readonly (readonly [string, string])[];
  readonly branches: readonly PageBranch[];
}

/** Returns the page of a session: every branch with `all`, else the path to the leaf. */
export function pageOf(session: Session, all: boolean): ExportPage {
  const { log, tree } = session;
  const branches = branchesOf(session, all);
  const branchesHere = new Map<number, number[]>();
  for (const [index, { from, active }] of branches.entries())
    if (!active && from >= 0) branchesHere.set(from, [...(branchesHere.get(from) ?? []), index + 1]);
  const entryAt = (position: number): PageEntry => ({
    number: position,
    body: bodyOf(session, position),
    label: tree.labels.get(position)?.label,
    branchesHere: branchesHere.get(position) ?? [],
  });
  return {
    title: session.name ?? `Session ${session.id}`,
    facts: [
      ["Session", session.id],
      ["Working directory", session.cwd],
      ["Begun", log.header.timestamp ?? ""],
      ...(session.parentSession === null ? [] : [["Forked from", session.parentSession] as const]),
    ],
    branches: branches.map(({ active, from, own }, index) => ({
      number: index + 1,
      active,
      from: from >= 0 ? from : undefined,
      preview: previewOf(session, own),
      facts: `${active ? "current, " : ""}${own.length} ${own.length === 1 ? "entry" : "entries"}`,
      *entries() {
        for (const position of own) yield entryAt(position);
      },
    })),
  };
}

/** Returns an entry whose message has its attachments put back. */
function bodyOf(session: Session, position: number): Readonly<Record<string, unknown>> {
  const line = session.line(position);
  const body = parse(line) as Record<string, unknown>;
  if (body.type !== "message") return body;
  const message = memberOf(members(line) ?? [], "message");
  if (!message) return body;
  const text = line.subarray(message.start, message.end);
  const whole = withAttachments(text, (sha256, size) => session.log.attachment(position, sha256, size));
  return whole === text ? body : { ...body, message: parse(whole) };
}

/** Returns the first words of the conversation in these entries. */
function previewOf(session: Session, positions: readonly number[]): string {
  for (const position of positions) {
    const body = session.entry(position);
    const message = body.message as { content?: unknown } | null | undefined;
    const text = preview(contentText(message?.content) || contentText(body.content) || shownText(body.summary));
    if (text !== "") return text;
  }
  return "";
}
