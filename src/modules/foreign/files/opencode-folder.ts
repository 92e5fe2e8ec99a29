/**
 * opencode's folder of older versions (`storage`), with the facts of a session, each message and each part in files:
 * `session/<project>/<session>.json`, `message/<session>/<message>.json`, `part/<message>/<part>.json`.
 */

import { basename, dirname, join } from "node:path";
import { type Disk, type FileInfo, readWhole } from "../../../storage/fs/disk.ts";
import { getInfo } from "../../../storage/fs/files.ts";
import { listFolderIfAllowed } from "../../../storage/fs/folders.ts";
import type { Translator } from "../read/translator.ts";
import { type GatheredRecords, type GatheredSession, joinStamps, numberRecords } from "./gathered.ts";

/** `file`: that of the facts, which begins as `translator` knows it. */
export function gatherFolderSession(disk: Disk, file: string, translator: Translator): GatheredSession {
  return {
    translator,
    info: () => infoOf(disk, file),
    read: () => recordsOf(disk, file),
  };
}

/** Returns the files of a session: that of the facts, then each message, with its parts after it. */
function filesOf(disk: Disk, file: string): string[] {
  const storage = dirname(dirname(dirname(file)));
  const found = [file];
  for (const message of documentsIn(disk, join(storage, "message", basename(file, ".json")))) {
    found.push(message);
    found.push(...documentsIn(disk, join(storage, "part", basename(message, ".json"))));
  }
  return found;
}

/** Returns the documents in a folder by their names, which begin with the time. */
function documentsIn(disk: Disk, folder: string): string[] {
  return listFolderIfAllowed(disk, folder)
    .filter(({ name, kind }) => kind === "file" && name.endsWith(".json"))
    .map(({ name }) => join(folder, name))
    .sort();
}

function infoOf(disk: Disk, file: string): FileInfo | null {
  const own = getInfo(disk, file);
  if (own?.kind !== "file") return null;
  const others = filesOf(disk, file).slice(1);
  return joinStamps([own, ...others.map((path) => getInfo(disk, path)).filter((info) => info !== null)]);
}

function recordsOf(disk: Disk, file: string): GatheredRecords {
  const lost: string[] = [];
  const records: Uint8Array[] = [];
  for (const path of filesOf(disk, file))
    try {
      records.push(readWhole(disk, path));
    } catch (error) {
      if (path === file) throw error;
      lost.push(`${path} cannot be read: its content is missing.`);
    }
  return { records: numberRecords(records), warnings: [], lost };
}
