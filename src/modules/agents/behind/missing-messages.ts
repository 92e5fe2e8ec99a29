/** Inserts messages that an agent showed and did not write into its session, in the order of showing. */

import { NO_USAGE, toMessageUsage } from "../../../core/foreign/messages.ts";
import { type Draft, makeDraft, patchMembers } from "../../../core/format/entry.ts";
import { findMember, getMembers, parse, toBytes } from "../../../core/json/json.ts";
import type { Session } from "../../../core/session/session.ts";
import { completeMessage, type MessageValue, matchStored } from "./messages.ts";

/** Entries at the end of a session that are searched for messages of the turn, if its beginning is unknown. */
const LOOKED_AT = 500;

/** The size of a session when a turn began: the turn's entries come after that. */
export interface TurnBeginning {
  readonly log: Session["log"];
  readonly count: number;
}

/** The messages that an agent showed in a turn, and the position of each one's entry; undefined if it has none. */
interface ShownTurn {
  readonly messages: readonly MessageValue[];
  readonly positions: readonly (number | undefined)[];
}

/** Finds the entries of shown messages among those that a session has got since the turn began. */
export function findShown(
  session: Session,
  from: TurnBeginning | undefined,
  messages: readonly MessageValue[],
): ShownTurn {
  const { log } = session;
  const { nodes } = log;
  const isKnown = from?.log === log && from.count <= nodes.count;
  const first = isKnown ? from.count : Math.max(0, nodes.count - LOOKED_AT - 2 * messages.length);
  const found: number[] = [];
  for (let at = first; at < nodes.count; at++) if (nodes.type(at) === "message") found.push(at);
  const stored = [...log.readMany(found)].map((line) => (parse(line) as { message?: unknown }).message);
  const positions = matchStored(messages, stored).map((index) => (index === undefined ? undefined : found[index]));
  return { messages, positions };
}

export function listMissing({ messages, positions }: ShownTurn): MessageValue[] {
  return messages.filter((_, n) => positions[n] === undefined);
}

/**
 * Appends the messages without an entry. Returns the ids of the new entries. If the agent wrote later messages of the
 * turn, the new entries are a branch that begins before these, continued by copies of these. If that branch would leave
 * out other entries, the leaf stays, and the messages are on a branch off the path.
 */
export function insertMissing(session: Session, shown: ShownTurn, now: () => number): readonly string[] {
  const { tree, log } = session;
  const { messages, positions } = shown;
  const draftOfShown = (message: MessageValue): Draft =>
    makeDraft("message", { message: completeMessage(message, session, now) });
  const first = positions.indexOf(undefined);
  const next = positions.find((position, n) => n > first && position !== undefined);
  if (next === undefined) return session.append(listMissing(shown).map(draftOfShown)).ids;

  const { leaf } = tree;
  const path = [...tree.path(leaf)];
  const later = path.includes(next) ? path.slice(path.indexOf(next)) : [];
  const isRepeatable = later.length > 0 && later.every((position) => log.nodes.type(position) === "message");
  const drafts: Draft[] = [];
  for (let n = first; n < messages.length; n++) {
    const position = positions[n];
    if (position === undefined) drafts.push(draftOfShown(messages[n]));
    else if (isRepeatable && later.includes(position))
      drafts.push(...later.splice(0, later.indexOf(position) + 1).map((at) => makeCopy(log.read(at))));
  }
  if (isRepeatable) drafts.push(...later.map((at) => makeCopy(log.read(at))));
  const parent = log.nodes.parent(next);
  const parentId = parent < 0 ? null : log.nodes.id(parent);
  const { ids } = session.append([{ ...drafts[0], parentId }, ...drafts.slice(1)]);
  if (!isRepeatable) session.moveLeaf(leaf);
  return ids;
}

const NOTHING_USED = toBytes(JSON.stringify(toMessageUsage(NO_USAGE)));

/** Returns a draft of the message on a line, byte for byte except its usage, which the entry on the line counts. */
function makeCopy(line: Uint8Array): Draft {
  const member = findMember(getMembers(line) ?? [], "message");
  const message = line.subarray(member?.start, member?.end);
  return makeDraft("message", { message: patchMembers(message, { usage: NOTHING_USED }) });
}
