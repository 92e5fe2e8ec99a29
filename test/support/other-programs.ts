/** Changes of other programs to the files of a server. */

import { cpSync, rmSync, symlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { toBytes } from "../../src/core/json/json.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { user } from "./drafts.ts";
import type { Json } from "./server.ts";
import { v2On } from "./v2.ts";

export type StoreName = "jsonl" | "v2";

/** Returns the path of the file that has the bytes of the entries. */
export function bodyFile(store: StoreName, sessionFile: string): string {
  return store === "jsonl" ? sessionFile : `${sessionFile}/segments/0000000000000001.seg`;
}

/** Appends an entry as another program does. */
export function writeElsewhere(
  store: StoreName,
  file: string,
  id: string,
  parentId: string,
  disk: Disk = realDisk,
): void {
  const { type, ...rest } = user("from elsewhere", {}) as Json;
  const line = JSON.stringify({ type, id, parentId, timestamp: "2026-01-24T16:22:26.831Z", ...rest });
  if (store === "jsonl") {
    const fd = disk.openAppend(file);
    disk.write(fd, toBytes(`${line}\n`));
    return disk.close(fd);
  }
  const log = v2On(disk, { seed: 9, durability: "os", containerFor: () => file }).open(file);
  log.append([Buffer.from(line)]);
  log.close();
}

/** Puts a copy of a session at another path, replacing any file there. */
export function copyTo(from: string, to: string): void {
  const namesOf = (path: string) => [path, ...(path.endsWith(".v2") ? [path.replace(/\.v2$/, ".store.json")] : [])];
  for (const [n, name] of namesOf(to).entries()) {
    rmSync(name, { recursive: true, force: true });
    cpSync(namesOf(from)[n], name, { recursive: true });
  }
}

/** Returns the same file by the name that it has through a link to its folder. */
export function otherName(path: string): string {
  const folder = `${dirname(path)} by another name`;
  symlinkSync(dirname(path), folder);
  return join(folder, basename(path));
}
