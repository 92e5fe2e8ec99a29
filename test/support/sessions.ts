/** Sessions for tests: from lines, in memory or as a file on a disk in memory. */

import type { SessionHeader } from "../../src/core/format/entry.ts";
import { decodeText, parse, toBytes } from "../../src/core/json/json.ts";
import type { Beginning, Log, Store } from "../../src/core/ports/store.ts";
import { Session } from "../../src/core/session/session.ts";
import { Workspace } from "../../src/core/session/workspace.ts";
import type { Disk } from "../../src/storage/fs/disk.ts";
import { makeJsonlStore } from "../../src/storage/jsonl/store.ts";
import { type Locks, noLocks } from "../../src/storage/locks/locks.ts";
import { makeLeafMemory } from "../../src/storage/log/leaf-store.ts";
import type { Durability } from "../../src/storage/log/write-state.ts";
import { makeMemoryStore } from "../../src/storage/memory.ts";
import { makeStores } from "../../src/storage/stores.ts";
import { FaultDisk } from "./disk.ts";
import { testEnv } from "./env.ts";
import { fileBytes, headerText } from "./lines.ts";

export const FOLDER = "/sessions/project";
export const FILE = `${FOLDER}/session.jsonl`;
export const STATE = "/state";
export const QUARANTINE = `${STATE}/quarantine`;

export function beginning(header: string = headerText(), file?: string): Beginning {
  const headerLine = toBytes(header);
  return { headerLine, header: parse(headerLine) as SessionHeader, file };
}

/** A session in memory that holds these lines. */
export async function sessionOf(lines: readonly string[], header = headerText()): Promise<Session> {
  const log = await makeMemoryStore().publish(beginning(header), lines.length === 0 ? [] : [fileBytes(...lines)]);
  return new Session(log, testEnv());
}

export function jsonlOn(
  disk: Disk,
  more: { durability?: Durability; readOnly?: boolean; seed?: number; locks?: Locks; syncedEarly?: number } = {},
): Store {
  return makeJsonlStore({
    disk,
    env: testEnv(more.seed),
    locks: more.locks ?? noLocks,
    quarantine: QUARANTINE,
    durability: more.durability ?? "sync",
    readOnly: more.readOnly,
    syncedEarly: more.syncedEarly,
    fileFor: (header) => `${FOLDER}/${header.id}.jsonl`,
  });
}

/** A disk with one session file. */
export function diskWith(content: string | Uint8Array, path = FILE): FaultDisk {
  const disk = new FaultDisk();
  disk.put(path, typeof content === "string" ? toBytes(content) : content);
  return disk;
}

/** Opens a file with this content. */
export function logOf(content: string | Uint8Array): Log {
  return jsonlOn(diskWith(content)).open(FILE);
}

/** The session in a file, as the server opens it: with the leaf positions of the state folder. */
export function openOn(disk: Disk, path = FILE, seed = 2): Session {
  return new Session(jsonlOn(disk, { seed }).open(path), testEnv(seed), makeLeafMemory(disk, STATE, true));
}

export function workspaceOn(disk: Disk, kind: "jsonl" | "v2" | "memory"): Workspace {
  const env = testEnv(3);
  const places = { flat: FOLDER, state: STATE };
  return new Workspace(
    makeStores({ disk, env, paths: places, locks: noLocks, durability: "sync", cwd: "/", kind }),
    env,
    "/home/me/project",
  );
}

export function idsOf(log: Log): string[] {
  return Array.from({ length: log.nodes.count }, (_, position) => log.nodes.id(position));
}

/** The lines of a log's entries. */
export function textsOf(log: Log): string[] {
  return Array.from({ length: log.nodes.count }, (_, position) => decodeText(log.read(position)));
}

/** The messages of the context at a position, as values. */
export function messagesAt(session: Session, position = session.tree.leaf): unknown[] {
  return [...session.messageTexts(session.context(position).items)].map((text) => parse(text));
}

export function kindsOf(log: Log): string[] {
  return log.damage.map(({ kind }) => kind);
}
