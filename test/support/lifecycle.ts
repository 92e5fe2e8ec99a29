/** Sessions that lie in the session folders, for tests of what happens to whole ones. */

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { toFolderName } from "../../src/storage/fs/paths.ts";
import { letRest } from "./cases.ts";
import { chain, fileText, headerText, id, userText } from "./lines.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "./server.ts";

export const CWD = "/home/me/project";

/** The n-th session id. */
export function sessionId(n: number): string {
  return `01991f6e-1f1d-7c3e-b0a4-0242ac13${String(n).padStart(4, "0")}`;
}

export function rootOf({ home }: Place): string {
  return join(home, ".pi", "agent", "sessions");
}

interface Wanted {
  readonly cwd?: string;
  readonly lines?: readonly string[];
  readonly header?: Record<string, unknown>;
  readonly folder?: string;
  readonly name?: string;
}

/** The n-th session in its folder, untouched for a while; answers its path. */
export function putSession(place: Place, n: number, wanted: Wanted = {}): string {
  const { cwd = CWD, lines = chain(3), header = {} } = wanted;
  const folder = wanted.folder ?? join(rootOf(place), toFolderName(cwd));
  const name = wanted.name ?? `2026-01-24T16-22-26-831Z_${sessionId(n)}.jsonl`;
  return put(join(folder, name), fileText(headerText({ id: sessionId(n), cwd, ...header }), ...lines));
}

export function put(file: string, content: string | Uint8Array): string {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, content);
  letRest(file);
  return file;
}

/** Everything below a folder, by path: the content of each file. */
export function contentsOf(folder: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile()) found[path] = readFileSync(path, "latin1");
  }
  return found;
}

/** A server with an empty session of its own, and real hashes. */
export function serveLibrary(place: Place = temporaryPlace(), args: string[] = []): HereServer {
  const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
  return serveHere(["--events", "none", ...args], { place, env: { sha256 } });
}

/** A server at a place with so many sessions, and the files in their folders. */
export interface Library {
  readonly place: Place;
  readonly server: HereServer;
  readonly files: readonly string[];
  readonly file: string;
  readonly contents: () => Record<string, string>;
}

export function library(count = 1, args: string[] = [], place = temporaryPlace(), wanted: Wanted = {}): Library {
  const files = Array.from({ length: count }, (_, n) => putSession(place, n + 1, wanted));
  const server = serveLibrary(place, args);
  return { place, server, files, file: files[0], contents: () => contentsOf(rootOf(place)) };
}

/** The params that name the first session. */
export const one = { sessionId: sessionId(1) };

/** Ids of the sessions that are listed. */
export async function listed(server: HereServer, params: object = {}): Promise<string[]> {
  const { sessions } = await server.result("list_sessions", params);
  return sessions.map((session: Json) => session.sessionId).sort();
}

export function read(file: string): string {
  return readFileSync(file, "latin1");
}

/** Puts a session with four entries, the second of them damaged, and more in a store. Returns its file before, and its path. */
export async function putDamaged(
  server: HereServer,
  place: Place,
  store: string,
  more: readonly string[] = [],
): Promise<{ file: string; sessionPath: string }> {
  const file = putSession(place, 1, { lines: [...chain(3), userText("c0000000", id(2), "x"), ...more] });
  if (store !== "v2") {
    put(file, read(file).replace('"say a0000001"', '"say a000'));
    return { file, sessionPath: file };
  }
  const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
  const segment = join(sessionPath, "segments", "0000000000000001.seg");
  writeFileSync(segment, read(segment).replace("say a0000001", "say\u0000a0000001"), "latin1");
  return { file, sessionPath };
}
