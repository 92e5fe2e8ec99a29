/** Things that many rules do before they look. */

import { isJsonrpc, isPi } from "./combination.ts";
import type { Conversation, Request } from "./conversation.ts";
import type { Params, Received, WireValue } from "./dialect.ts";
import { isFileAt, isThere, readBytes } from "./files.ts";
import type { Reply } from "./reply.ts";
import { NotApplicable } from "./verdict.ts";

export function makeUser(content: string): WireValue {
  return { type: "message", message: { role: "user", content } };
}

/** Returns an assistant's message with all that Pi needs in one. */
export function makeAssistant(text: string): WireValue {
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
  const usage = { input: 10, output: 5, cacheRead: 0, cacheWrite: 0, totalTokens: 15, cost };
  const who = { api: "anthropic-messages", provider: "anthropic", model: "claude-sonnet-4-5" };
  const content = [{ type: "text", text }];
  const message = { role: "assistant", content, ...who, usage, stopReason: "stop", timestamp: 1769271746831 };
  return { type: "message", message };
}

export function makeCustom(data: WireValue): WireValue {
  return { type: "custom", customType: "conformance", data };
}

/** Makes a new, empty session current. */
export async function makeSession(conversation: Conversation): Promise<void> {
  await conversation.run("new_session");
}

/** Appends entries at the leaf and returns their ids. */
export async function append(conversation: Conversation, ...entries: readonly WireValue[]): Promise<string[]> {
  return (await conversation.ask("append", { entries })).list("entryIds");
}

/** Makes a new session current that holds a turn for each text, and returns the ids of the entries. */
export async function makeTurns(conversation: Conversation, ...texts: readonly string[]): Promise<string[]> {
  await makeSession(conversation);
  if (texts.length === 0) return [];
  return append(conversation, ...texts.flatMap((text) => [makeUser(text), makeAssistant(`Answer: ${text}`)]));
}

/** Returns all entries of the current session, and the leaf. */
export async function getEntries(
  conversation: Conversation,
): Promise<{ entries: WireValue[]; leafId: string | null; reply: Reply }> {
  const reply = await conversation.ask("get_entries");
  const entries = reply.list("entries");
  const { leafId } = reply.result;
  if (leafId !== null && typeof leafId !== "string") throw reply.broken("a `leafId` that is a text or null");
  return { entries, leafId, reply };
}

/** Checks that the current session has these entries and no others. */
export async function mustHaveEntries(conversation: Conversation, ids: readonly string[]): Promise<void> {
  const { entries, reply } = await getEntries(conversation);
  reply.must(isEqual(getIds(entries), ids), `the entries ${ids.join(", ")}`);
}

/** Checks that nothing but events leaves the server after something that is not to be answered. */
export async function mustNotBeAnswered(conversation: Conversation, sent: string): Promise<void> {
  const [other] = (await conversation.settle()).filter(({ kind }) => kind !== "event");
  if (other !== undefined) throw conversation.broken(`no reply to ${sent}`, other.text);
}

/** Makes a session with one turn, begins a fork before it, and leaves that waiting for the host's answer to its hook. */
export async function beginFork(
  conversation: Conversation,
  ...later: readonly Request[]
): Promise<{ ids: string[]; hook: Received }> {
  const [entryId] = await makeTurns(conversation, "One");
  conversation.hold("session_before_fork");
  const ids = conversation.begin(["fork", { entryId }], ...later);
  return { ids, hook: await conversation.hook("session_before_fork") };
}

export async function getState(conversation: Conversation): Promise<WireValue> {
  const reply = await conversation.ask("get_state");
  reply.string("sessionId");
  return reply.result;
}

/** Returns where the current session is, which must be on disk. Throws NotApplicable where sessions are in memory. */
export async function requirePath(conversation: Conversation): Promise<string> {
  const reply = await conversation.ask("get_state");
  const { sessionFile } = reply.result;
  if (typeof sessionFile === "string") return sessionFile;
  const isReported = sessionFile === null || (sessionFile === undefined && isPi(conversation.combination));
  if (!isReported) throw reply.broken("sessionFile, which is a path or null");
  throw new NotApplicable("the server keeps its sessions in memory");
}

/** Returns the file of the current session. Throws NotApplicable where a session is no file. */
export async function requireFile(conversation: Conversation): Promise<string> {
  const path = await requirePath(conversation);
  if (isFileAt(path)) return path;
  throw new NotApplicable(`the server keeps its sessions in no files: ${path} is none`);
}

/** Makes the session at a path the current one. */
export async function openSessionAt(conversation: Conversation, sessionPath: string): Promise<void> {
  await conversation.run("switch_session", { sessionPath });
}

/** Checks that a file has these bytes, or with `isLonger` begins with them. */
export function mustHaveBytes(conversation: Conversation, path: string, bytes: Buffer, isLonger = false): void {
  const now = readBytes(path);
  const holds = (isLonger ? now.subarray(0, bytes.length) : now).equals(bytes);
  const what = isLonger ? `a file ${path} that begins with its bytes of before` : `the bytes of ${path} as they were`;
  conversation.must(holds, what, now.toString());
}

/** Checks that there is something at a path, or nothing. */
export function mustBeThere(conversation: Conversation, path: string, isExpected: boolean, when: string): void {
  const [expected, came] = isExpected ? ["a file", "none"] : ["no file", "one"];
  conversation.must(isThere(path) === isExpected, `${expected} at ${path} ${when}`, came);
}

/** Returns the unread events, with those that come before the reply to a read. */
export async function settleEvents(conversation: Conversation): Promise<Received[]> {
  return (await conversation.settle()).filter(({ kind }) => kind === "event");
}

/** Returns the damage of the current session: of the state, or, in Pi's dialect, of a verification. */
export async function getDamage(conversation: Conversation): Promise<{ damage: WireValue[]; reply: Reply }> {
  const isRpc = isJsonrpc(conversation.combination);
  const reply = await conversation.ask(isRpc ? "get_state" : "verify_session");
  return { damage: reply.list(isRpc ? "diagnostics" : "damage"), reply };
}

/** Returns the texts of all pages of a command that lists, and the pages. */
export async function readPages(
  conversation: Conversation,
  command: string,
  member: string,
  params: Params,
): Promise<{ items: WireValue[]; pages: Reply[] }> {
  const items: WireValue[] = [];
  const pages: Reply[] = [];
  let cursor: string | undefined;
  do {
    const page = await conversation.ask(command, cursor === undefined ? params : { ...params, cursor });
    items.push(...page.list(member));
    pages.push(page);
    cursor = page.result.nextCursor;
    page.must(cursor === undefined || typeof cursor === "string", "a `nextCursor` that is a text, or none");
    page.must(pages.length < MOST_PAGES, `an end of the pages before the ${MOST_PAGES}th`);
  } while (cursor !== undefined);
  return { items, pages };
}

const MOST_PAGES = 500;

export function getIds(values: readonly WireValue[]): unknown[] {
  return values.map((value) => value?.id);
}

/** Returns whether two values have the same JSON text. */
export function isEqual(a: WireValue, b: WireValue): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
