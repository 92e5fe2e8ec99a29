/** Checks that every translator passes, whatever the file: all is counted, and every leaf has a context that providers take. */

import { expect } from "vitest";
import { pairMessages, type Shown } from "../../../../src/core/context/pairing.ts";
import { decodeText, findValueEnd, parse } from "../../../../src/core/json/json.ts";
import type { FidelityReport } from "../../../../src/core/ports/fidelity.ts";
import type { Log } from "../../../../src/core/ports/store.ts";
import { Session } from "../../../../src/core/session/session.ts";
import { makeForeignStore } from "../../../../src/modules/foreign/files/store.ts";
import type { Disk } from "../../../../src/storage/fs/disk.ts";
import { FaultDisk } from "../../../support/disk.ts";
import { testEnv } from "../../../support/env.ts";
import type { Random } from "../../../support/random.ts";

export const FOREIGN_FILE = "/elsewhere/project/7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl";

/** Opens a file with this content as a session, on a disk in memory. */
export function foreignSession(content: string | Uint8Array, file = FOREIGN_FILE): Session {
  return foreignSessionOn(diskWithForeign(content, file), file);
}

export function diskWithForeign(content: string | Uint8Array, file = FOREIGN_FILE): FaultDisk {
  const disk = new FaultDisk();
  disk.put(file, typeof content === "string" ? Buffer.from(content) : content);
  return disk;
}

export function foreignSessionOn(disk: Disk, file = FOREIGN_FILE, state = "/state", worthKeeping?: number): Session {
  const env = { ...testEnv(), now: () => Date.now() };
  const log = makeForeignStore(disk, env, state, worthKeeping).open(file);
  if (!log) throw new Error("the file is not recognised");
  return new Session(log, testEnv());
}

/** Returns the report of a log, whose counts must add up. */
export function fidelityOf(log: Log): FidelityReport {
  const report = log.foreign?.fidelity();
  if (!report) throw new Error("the log is not another agent's");
  requireSum(report);
  return report;
}

export function requireSum({ records, kinds }: FidelityReport): void {
  let sum = 0;
  for (const { preserved, derived, dropped } of kinds) sum += preserved + derived + dropped;
  expect(sum).toBe(records);
}

/** Returns the entries of a session in their order. */
export function entriesOf({ log }: Session): Record<string, unknown>[] {
  return Array.from(
    { length: log.nodes.count },
    (_, p) => JSON.parse(decodeText(log.read(p))) as Record<string, unknown>,
  );
}

/** The messages of the strict context at a leaf, by value. */
export function strictContext(session: Session, leaf = session.tree.leaf): Record<string, unknown>[] {
  return valuesOf(pairMessages(session.tree, messagesOf(session, leaf)));
}

function valuesOf(shown: readonly Shown[]): Record<string, unknown>[] {
  return shown.map(({ text }) => parse(text) as Record<string, unknown>);
}

type Value = Record<string, unknown>;

/** The words for roles that mean the same in drawn trees. */
const WORDS: Value = {
  assistant: "model",
  toolResult: "result",
  compactionSummary: "summary",
  branchSummary: "summary",
};

/** Draws a message: who speaks (a result of a call that failed is a failure), the texts, thoughts in round brackets, calls in square ones. */
function drawnMessage({ role, content, summary, isError }: Value): string {
  const blocks = Array.isArray(content) ? content : [{ text: content ?? summary ?? "" }];
  const parts = blocks.map(({ type, text, thinking, id }: Value) =>
    type === "thinking" ? `(${thinking})` : type === "toolCall" ? `[${id}]` : (text ?? `<${type}>`),
  );
  return `${isError === true ? "failure" : (WORDS[role as string] ?? role)}: ${parts.join(" ").trim()}`.trimEnd();
}

/** Draws the strict context at a leaf, a line for each message. */
export function drawnContext(session: Session, leaf = session.tree.leaf): string[] {
  return strictContext(session, leaf).map(drawnMessage);
}

/**
 * Draws the tree, a line for each entry that says something, in the order of the file. One that does not continue the
 * line before it begins with the number of the line that it continues, from 1 on, and a root with 0.
 */
export function drawnTree(session: Session): string[] {
  const { nodes } = session.log;
  const lineOf: number[] = [];
  const drawn: string[] = [];
  for (const [position, { type, message, summary, ...entry }] of entriesOf(session).entries()) {
    const parent = lineOf[nodes.parent(position)] ?? 0;
    const shown =
      type === "message" ? (message as Value) : type === "custom_message" ? { ...entry, role: "custom" } : undefined;
    const said = shown ?? (typeof summary === "string" ? { role: "compactionSummary", summary } : undefined);
    if (said) drawn.push(`${parent === drawn.length ? "" : `${parent} < `}${drawnMessage(said)}`);
    lineOf[position] = said ? drawn.length : parent;
  }
  return drawn;
}

/** Returns the messages of the context at a leaf, as they are. */
function messagesOf(session: Session, leaf: number): Shown[] {
  const shown: Shown[] = [];
  for (const item of session.context(leaf).items) {
    const [text] = session.messageTexts([item]);
    if (text) shown.push({ item, text: Uint8Array.from(text) });
  }
  return shown;
}

function leavesOf({ log: { nodes } }: Session): number[] {
  const positions = Array.from({ length: nodes.count }, (_, position) => position);
  const parents = new Set(positions.map((position) => nodes.parent(position)));
  return positions.filter((position) => !parents.has(position));
}

/**
 * Requires of each leaf that every call has its result directly after it, that no result comes without its call, and that
 * nothing else than texts and pictures is given to the model: providers refuse the whole conversation otherwise.
 */
export function requirePairedAtEveryLeaf(session: Session, areAsWritten = false): number {
  const { nodes } = session.log;
  const leaves = leavesOf(session);
  for (const position of leaves) {
    const messages = strictContext(session, position);
    expect(pairingFault(messages) ?? givenFault(messages, areAsWritten), `at entry ${nodes.id(position)}`).toBeNull();
  }
  return leaves.length;
}

/** Returns how messages break the rule of providers; null where they keep it. */
function pairingFault(messages: readonly Record<string, unknown>[]): string | null {
  let open: string[] = [];
  for (const [n, { role, content, toolCallId }] of messages.entries()) {
    if (role === "toolResult") {
      // If an id is empty or no string, the order pairs (core/context/pairing.ts).
      const id = typeof toolCallId === "string" ? toolCallId : "";
      const exact = open.indexOf(id);
      const at = exact >= 0 ? exact : id === "" ? 0 : open.indexOf("");
      if (at < 0 || open.length === 0)
        return `message ${n} is a result of ${toolCallId}, which was not called just before`;
      open.splice(at, 1);
      continue;
    }
    if (open.length > 0) return `message ${n} comes before the results of ${open.join(", ")}`;
    if (role !== "assistant" || !Array.isArray(content)) continue;
    open = content.filter((block) => block?.type === "toolCall").map(({ id }) => (typeof id === "string" ? id : ""));
  }
  return open.length > 0 ? `the results of ${open.join(", ")} are missing at the end` : null;
}

/**
 * Returns which message has something for the model that is neither a text nor a picture; null where none has. Messages
 * that are kept as written may have other blocks, but no picture without bytes.
 */
function givenFault(messages: readonly Record<string, unknown>[], areAsWritten: boolean): string | null {
  for (const [n, { role, content }] of messages.entries()) {
    if (role === "assistant" || !Array.isArray(content)) continue;
    for (const block of content) {
      const { type, text, data, mimeType } = block ?? {};
      const isPicture = type === "image" && data !== "" && mimeType !== "";
      const isOther = areAsWritten ? type !== "image" : type === "text" && typeof text === "string";
      if (!isPicture && !isOther) return `message ${n} of ${role} has a block of the type ${type}`;
    }
  }
  return null;
}

/** Ids of calls and results that are left out of the strict contexts at the leaves of a session. */
export function leftOut(session: Session) {
  const leaves = leavesOf(session);
  /** Calls that have no result there, results without a call there, and calls whose result is there. */
  const [unanswered, unasked, torn] = [new Set<string>(), new Set<string>(), new Set<string>()];
  for (const leaf of leaves) {
    const whole = idsIn(valuesOf(messagesOf(session, leaf)));
    const strict = idsIn(strictContext(session, leaf));
    for (const id of whole.calls) if (!strict.calls.has(id)) (whole.results.has(id) ? torn : unanswered).add(id);
    for (const id of whole.results) if (!strict.results.has(id) && !whole.calls.has(id)) unasked.add(id);
  }
  return { leaves: leaves.length, unanswered, unasked, torn };
}

function idsIn(messages: readonly Record<string, unknown>[]): { calls: Set<string>; results: Set<string> } {
  const blocks = messages.flatMap(({ role, content }) =>
    role === "assistant" && Array.isArray(content) ? content : [],
  );
  const results = messages.filter(({ role }) => role === "toolResult").map(({ toolCallId }) => String(toolCallId));
  const calls = blocks.filter((block) => block?.type === "toolCall").map(({ id }) => String(id));
  return { calls: new Set(calls), results: new Set(results) };
}

/** Requires that no entry names a parent that is missing or comes later, and that ids are there once. */
function requireSoundTree(session: Session): void {
  const seen = new Set<string>();
  for (const { id, parentId } of entriesOf(session)) {
    expect(seen.has(id as string), `id ${id} twice`).toBe(false);
    if (parentId !== null) expect(seen.has(parentId as string), `parent ${parentId} of ${id}`).toBe(true);
    seen.add(id as string);
  }
}

/** Everything that holds for every file, damaged or not; oh-my-pi's messages are as written. */
export function requireSound(session: Session, areAsWritten = false): void {
  fidelityOf(session.log);
  requireSoundTree(session);
  requirePairedAtEveryLeaf(session, areAsWritten);
}

/** Returns lines that were damaged in one of many ways. */
export function damagedLines(random: Random, lines: readonly string[]): Buffer {
  const out: Buffer[] = lines.map((line) => Buffer.from(line));
  for (let times = 1 + random.int(4); times > 0 && out.length > 0; times--) {
    const at = random.int(out.length);
    const line = out[at];
    const ways: (() => unknown)[] = [
      () => out.splice(at, 1),
      () => out.splice(at, 0, line),
      () => out.splice(random.int(out.length), 0, ...out.splice(at, 1)),
      () => out.splice(at, 1, line.subarray(0, random.int(line.length + 1))),
      () => out.splice(at, 1, withByte(random, line)),
      () => out.splice(at, 1, Buffer.concat([line, out[(at + 1) % out.length]])),
      () => out.splice(at, 1, Buffer.from(otherValue(random, line.toString()))),
    ];
    random.pick(ways)();
  }
  const bytes = Buffer.concat(out.flatMap((line, n) => (n === 0 ? [line] : [Buffer.from("\n"), line])));
  return Buffer.concat([bytes, Buffer.from(random.chance(0.5) ? "\n" : "")]);
}

/** Returns a line with a byte of any value in the place of one. */
function withByte(random: Random, line: Buffer): Buffer {
  const bytes = Buffer.from(line);
  if (bytes.length > 0) bytes[random.int(bytes.length)] = random.int(256);
  return bytes;
}

const VALUES = ["null", "0", "-1", "1e400", '""', '"x"', "[]", "{}", "true", '[null,{"type":7}]', '"__proto__"'];

/** Returns a line with another value in one place, for readers must not rely on the type of a member. */
function otherValue(random: Random, line: string): string {
  const places = [...line.matchAll(/:(?=["{[\dtfn])/g)].map(({ index }) => index + 1);
  if (places.length === 0) return random.pick(VALUES);
  const from = random.pick(places);
  const bytes = Buffer.from(line);
  const before = Buffer.byteLength(line.slice(0, from));
  const end = findValueEnd(bytes, before, bytes.length);
  // A colon in a string has no value behind it.
  const to = end < 0 ? from + 1 : bytes.toString("utf8", 0, end).length;
  return `${line.slice(0, from)}${random.pick(VALUES)}${line.slice(to)}`;
}
