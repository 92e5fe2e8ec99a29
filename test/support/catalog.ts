/** Session files for the catalog to find, a catalog on them, and what a reader that shares no code with it says. */

import { createHash } from "node:crypto";
import { lstatSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished, test } from "vitest";
import type { Catalog, Hit, Listed, SearchRequest } from "../../src/core/ports/catalog.ts";
import type { Env } from "../../src/core/ports/env.ts";
import type { Store } from "../../src/core/ports/store.ts";
import type { CatalogOptions } from "../../src/storage/catalog/cached-rows.ts";
import { makeCatalog } from "../../src/storage/catalog/catalog.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { makeJsonlStore } from "../../src/storage/jsonl/store.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeLeafMemory } from "../../src/storage/log/leaf-store.ts";
import { makeSegmentedStore } from "../../src/storage/v2/store.ts";
import { forSeedsAsync, type Random } from "./random.ts";
import { type Json, temporaryFolder } from "./server.ts";

export const realEnv: Env = {
  now: () => Date.now(),
  sessionId: () => "unused",
  entryId: () => "00000000",
  sha256: (bytes) => createHash("sha256").update(bytes).digest("hex"),
};

export interface Library {
  readonly root: string;
  readonly state: string;
}

export function temporaryLibrary(): Library {
  const home = temporaryFolder();
  return { root: join(home, "sessions"), state: join(home, "state") };
}

/** A catalog of its own, as another process would have it. */
export function catalogOn({ root, state }: Library, more: Partial<CatalogOptions> = {}): Catalog {
  const jsonl = makeJsonlStore({ ...storing(state), fileFor: () => "/dev/null/none" });
  const v2 = containersIn({ root, state });
  const catalog = makeCatalog({
    disk: realDisk,
    env: realEnv,
    paths: { root, state },
    leaves: makeLeafMemory(realDisk, state, false),
    openLog: (file) => (file.endsWith(".v2") ? v2 : jsonl).open(file, true),
    ...more,
  });
  onTestFinished(() => catalog.close());
  return catalog;
}

/** The store of Session Store V2 containers, as another process would have it. */
export function containersIn({ root, state }: Library): Store {
  return makeSegmentedStore({
    ...storing(state),
    containerFor: ({ id }) => join(root, `${id}.v2`),
    segmentBytes: 4096,
  });
}

function storing(state: string) {
  const quarantine = join(state, "quarantine");
  return { disk: realDisk, env: realEnv, locks: noLocks, quarantine, durability: "os" } as const;
}

/** A clock by which new files have rested: a file may change again under its stamp soon after a change. */
export const later: Env = { ...realEnv, now: () => Date.now() + 60_000 };

export const withoutSqlite = { sqlite: () => undefined };

// --- a second opinion ------------------------------------------------------------------------------------------------

/** The list as JSON.parse and plain loops have it. */
export function readList(root: string): Partial<Listed>[] {
  const listed: Partial<Listed>[] = [];
  for (const file of sessionFiles(root)) {
    const known = readSession(file);
    if (known) listed.push(known);
  }
  return listed.sort((a, b) => (b.modified as number) - (a.modified as number) || (a.path! < b.path! ? 1 : -1));
}

export function sessionFiles(root: string): string[] {
  const files: string[] = [];
  for (const folder of namesIn(root))
    for (const name of namesIn(join(root, folder)))
      if (name.endsWith(".jsonl") && !name.startsWith(".")) files.push(join(root, folder, name));
  return files.filter((file) => statSync(file, { throwIfNoEntry: false })?.isFile() === true);
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

function linesOf(file: string): Json[] {
  return readFileSync(file, "utf8")
    .split("\n")
    .flatMap((line) => {
      try {
        const value = JSON.parse(line);
        return typeof value === "object" && value !== null && !Array.isArray(value) ? [value] : [];
      } catch {
        return [];
      }
    });
}

function readSession(file: string): Partial<Listed> | undefined {
  const [header, ...rest] = linesOf(file);
  if (header?.type !== "session" || typeof header.id !== "string") return undefined;
  const entries = rest.filter(({ type }) => typeof type === "string" && type !== "session");
  const messages = entries.filter(({ type }) => type === "message");
  const talk = messages.filter(({ message }) => ["user", "assistant"].includes(message?.role));
  const times = talk.map(({ message: { timestamp: own }, timestamp }) =>
    typeof own === "number" ? own : Date.parse(timestamp),
  );
  const asked = talk.filter(({ message }) => message.role === "user");
  const texts = asked.map(({ message }) => textOf(message.content).trim().slice(0, 1000));
  const created = Date.parse(header.timestamp);
  const labels: Record<string, string> = {};
  for (const { targetId, label } of entries.filter(({ type }) => type === "label")) {
    delete labels[targetId];
    if (label) labels[targetId] = label;
  }
  return {
    ...(Object.keys(labels).length > 0 ? { labels: Object.values(labels) } : {}),
    ...{ path: file, id: header.id, cwd: header.cwd ?? null, created, store: "jsonl", archived: false },
    name: entries.findLast(({ type }) => type === "session_info")?.name?.trim() || null,
    parentSession: header.parentSession ?? header.branchedFrom ?? null,
    modified: Math.max(times.findLast((time) => !Number.isNaN(time)) ?? 0, created),
    messageCount: messages.length,
    firstMessage: texts.find((text) => text !== "") ?? null,
    sizeBytes: statSync(file).size,
    headerOnly: entries.length === 0,
  };
}

function textOf(content: Json): string {
  if (typeof content === "string") return content;
  return (content ?? [])
    .filter(({ type }: Json) => type === "text")
    .map(({ text }: Json) => text)
    .join("");
}

/** Returns lower-case text in one composition, for searches of words. */
const plain = (text: string): string => text.normalize("NFC").toLowerCase();
const holdsAll = (text: string, words: readonly string[]): boolean =>
  words.every((word) => plain(text).includes(plain(word)));

/** Entries of messages that are meant, as `path entry`. */
function readMessages(root: string, isMeant: (message: Json) => number): string[] {
  const hits: string[] = [];
  for (const file of sessionFiles(root))
    for (const { type, id, message } of linesOf(file))
      if (type === "message") for (let n = isMeant(message ?? {}); n > 0; n--) hits.push(`${file} ${id}`);
  return hits.sort();
}

/** Entries whose message holds all of the words, as `path entry`. */
export function readHits(root: string, words: readonly string[], roles = ["user", "assistant"]): string[] {
  return readMessages(root, ({ role, content }) => Number(roles.includes(role) && holdsAll(textOf(content), words)));
}

/** Calls whose arguments hold all of the words, of one tool and naming one file if asked, as `path entry`. */
export function readCalls(root: string, words: readonly string[], asked: { tool?: string; file?: string } = {}) {
  const isMeant = ({ type, name, arguments: given }: Json): boolean => {
    if (type === "text" || (asked.tool !== undefined && name !== asked.tool)) return false;
    const args = typeof given === "string" ? JSON.parse(given) : given;
    const files = [args.path, ...String(args.command ?? "").split(" ")].filter((word) => word?.includes("/"));
    if (asked.file !== undefined && !files.some((word) => `/${word}`.endsWith(`/${asked.file}`))) return false;
    return holdsAll(Object.values(args).flat().join(" "), words);
  };
  return readMessages(root, ({ role, content, details, toolName }) => {
    const { path } = details ?? {};
    const named = role === "toolResult" && path ? [{ name: toolName, arguments: { path } }] : [];
    return [...(role === "assistant" ? content : []), ...named].filter(isMeant).length;
  });
}

/** Bytes and times of every file, by path. */
export function fingerprints(root: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of readdirSync(root, { recursive: true, encoding: "utf8" })) {
    const path = join(root, name);
    const { mtimeMs, ctimeMs, size, ino } = lstatSync(path);
    const content = statSync(path, { throwIfNoEntry: false })?.isFile() ? realEnv.sha256(readFileSync(path)) : "";
    found[name] = [mtimeMs, ctimeMs, size, ino, content].join(" ");
  }
  return found;
}

// --- asking ----------------------------------------------------------------------------------------------------------

export async function listed(catalog: Catalog): Promise<Listed[]> {
  return [...(await catalog.list({ headerOnly: true })).found];
}

const ANYWHERE = { limit: 1_000_000, isActive: () => undefined };

/** All hits of a search, page by page. */
export async function allHits(catalog: Catalog, request: Partial<SearchRequest> & { query: string }): Promise<Hit[]> {
  const hits: Hit[] = [];
  for (;;) {
    const page = await catalog.search({ ...ANYWHERE, cursor: hits.at(-1)?.cursor, ...request });
    hits.push(...page.hits);
    if (!page.more) return hits;
  }
}

export function places(hits: readonly Hit[]): string[] {
  return hits.map(({ path, entryId }) => `${path} ${entryId}`).sort();
}

// --- sessions ----------------------------------------------------------------------------------------------------------

const SAID = "auth refactor token cache session getUserName parse_header läuft Ärger 会议记录 検索 поиск error failed";
const WORDS = [...SAID.split(" "), "build", "中", "xy", "zebra"];

export function randomText(random: Random): string {
  return Array.from({ length: 1 + random.int(12) }, () => random.pick(WORDS)).join(random.pick([" ", " ", "\n", ""]));
}

const PATHS = ["src/store.ts", "src/x/store.ts", "test/store.ts", "/etc/hosts"];

/** Returns a call of a tool as an assistant message has it, in one of the forms that agents write. */
function randomCall(random: Random): Json {
  const path = random.pick(PATHS);
  const [name, args] = random.pick<() => [string, Json]>([
    () => ["bash", { command: `cat ${path} ${random.pick(WORDS)}`, timeout: random.int(100) }],
    () => ["bash", { command: ["echo", random.pick(WORDS)] }],
    () => ["edit", { path, oldText: randomText(random), newText: randomText(random) }],
    () => ["write", { content: randomText(random), path }],
    () => ["list", {}],
  ])();
  return { type: "toolCall", id: random.hex(4), name, arguments: random.chance(0.2) ? JSON.stringify(args) : args };
}

/** The line of a random entry, with its line feed. */
export function randomLine(random: Random, id: string, parentId: string | null, time: number): string {
  const base = { id, parentId, timestamp: new Date(time).toISOString() };
  const text = randomText(random);
  const own = random.chance(0.7) ? { timestamp: time + random.int(1000) } : {};
  const block = { type: "text", text };
  const message = (role: string, content: unknown, more: object = {}): Json => ({
    ...{ type: "message", ...base },
    message: { role, content, ...more, ...own },
  });
  const calls = (): Json[] => Array.from({ length: random.int(3) }, () => randomCall(random));
  const result = (): object => ({
    ...{ toolCallId: "c", toolName: random.pick(["bash", "edit"]) },
    details: random.chance(0.5) ? { path: random.pick(PATHS) } : { diff: text },
  });
  const entry = random.pick<() => Json>([
    () => message("user", text),
    () => message("assistant", [block]),
    () => message("toolResult", [block]),
    () => message("assistant", [block, ...calls()]),
    () => message("toolResult", [block], result()),
    () => ({ ...base, type: "message", message: { content: text, role: "user" } }),
    () => ({ type: "session_info", ...base, name: random.pick(["One", "Two", "", `Name ${text.slice(0, 5)}`]) }),
    () => ({ type: "custom", ...base, customType: "other", data: { text } }),
    () => ({ type: "label", ...base, targetId: id, label: "x" }),
  ])();
  return `${JSON.stringify(entry)}\n`;
}

interface RandomSession {
  readonly id: string;
  readonly text: string;
  /** Id of the last entry. */
  readonly last: string | null;
}

/** A session of random entries, one chain or a tree. */
export function randomSession(random: Random, cwd: string, more: object = {}): RandomSession {
  const id = `01991f6e-${random.hex(4)}-7${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
  const begun = Date.UTC(2026, 0, 1) + random.int(1e9);
  let text = `${JSON.stringify({ type: "session", version: 3, id, timestamp: new Date(begun).toISOString(), cwd, ...more })}\n`;
  const ids: string[] = [];
  const branches = random.chance(0.3);
  for (let n = random.int(12); n > 0; n--) {
    const entryId = random.hex(8);
    const parentId = branches && ids.length > 0 && random.chance(0.3) ? random.pick(ids) : (ids.at(-1) ?? null);
    text += randomLine(random, entryId, parentId, begun + random.int(1e8));
    ids.push(entryId);
  }
  return { id, text, last: ids.at(-1) ?? null };
}

/** Puts a random session into a folder, and returns its file. */
export function putRandomSession(random: Random, folder: string, cwd: string): string {
  mkdirSync(folder, { recursive: true });
  const { id, text } = randomSession(random, cwd);
  const file = join(folder, `2026-01-24T16-22-26-831Z_${id}.jsonl`);
  writeFileSync(file, text);
  return file;
}

/** A test with a library of so many random sessions in three folders. */
export function withLibrary(
  name: string,
  { sessions, ...options }: { readonly sessions: number; readonly tags?: string[]; readonly meta?: object },
  run: (library: Library, random: Random) => Promise<void>,
): void {
  test(name, options as object, () =>
    forSeedsAsync(1, async (random) => {
      const library = temporaryLibrary();
      for (let n = 0; n < sessions; n++)
        putRandomSession(random, join(library.root, `--home-me-${n % 3}--`), `/home/me/${n % 3}`);
      await run(library, random);
    }),
  );
}
