/** Opens files of other agents, for reading only. */

import { basename, dirname, join } from "node:path";
import { isErrno } from "../../../core/errno.ts";
import { isObject } from "../../../core/foreign/messages.ts";
import { decodeText, tryParseText } from "../../../core/json/json.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { ForeignFiles } from "../../../storage/foreign-module.ts";
import { isContainerName } from "../../../storage/fs/container-paths.ts";
import { type Disk, readWhole } from "../../../storage/fs/disk.ts";
import { findAllowed, readBeginning, readIfFile } from "../../../storage/fs/files.ts";
import { listFolderIfAllowed } from "../../../storage/fs/folders.ts";
import { clineHistory, rooHistory, toRooTranslator } from "../read/cline/cline.ts";
import { opencodeFacts } from "../read/opencode/opencode.ts";
import type { SourceBase, Translator } from "../read/translator.ts";
import { gatherClineTask } from "./cline-task.ts";
import { readCompressedRollout, surveyByName } from "./compressed.ts";
import { findInSameDatabase, gatherDatabaseSession } from "./databases.ts";
import { DerivationCache } from "./derivation-cache.ts";
import { type GatheredRecords, type GatheredSession, numberRecords, stampTogether } from "./gathered.ts";
import { InnerSessions } from "./inner-sessions.ts";
import { ForeignLog, readOnlyOf } from "./log.ts";
import { findBaseFile, findParentFile, getExtension } from "./places.ts";
import { recogniseFile } from "./source.ts";
import { type Surveyed, surveyFile } from "./survey.ts";

export interface ForeignStore extends ForeignFiles {
  /** Returns the facts that lists show of a file of another agent; undefined for any other. Throws storage_failed. */
  survey(file: string): Surveyed | undefined;
}

/** `state`: our state folder, which has the cache. `worthKeeping`: bytes of a file from which on it is cached. */
export function makeForeignStore(disk: Disk, env: Env, state: string, worthKeeping?: number): ForeignStore {
  const folder = join(state, "foreign");
  const kept = new DerivationCache(disk, folder, env.sha256, worthKeeping);
  const parentOf = (file: string, nativeId: string): string | undefined =>
    findAllowed(() => findParentFile(disk, file, nativeId) ?? findInSameDatabase(disk, file, nativeId));
  const baseOf = (file: string, base: SourceBase): string | undefined =>
    findAllowed(() => findBaseFile(disk, file, base));
  const cwdOf = (file: string): string | undefined => findAllowed(() => findGeminiProject(disk, file));
  const inner = new InnerSessions(disk);
  const known = (
    file: string,
    isForList = false,
  ): { translator: Translator; gathered?: GatheredSession } | undefined => {
    if (isContainerName(file)) return undefined;
    try {
      const found = recogniseFile(disk, file);
      const translator = found && getExtension(file) === rooHistory.agent ? toRooTranslator(found) : found;
      if (translator === clineHistory || translator === rooHistory)
        return { translator, gathered: isForList ? undefined : gatherClineTask(disk, file, translator) };
      if (translator === opencodeFacts) return { translator, gathered: gatherFolderSession(disk, file, translator) };
      if (translator) return { translator };
      const gathered = readCompressedRollout(disk, file) ?? inner.session(file) ?? gatherDatabaseSession(disk, file);
      return gathered && { translator: gathered.translator, gathered };
    } catch (error) {
      // Opening it as a session reports why it cannot be read.
      if (!isErrno(error)) throw error;
      return undefined;
    }
  };
  return {
    open(file, { but, asReader = false } = {}) {
      const found = known(file);
      if (found?.translator.agent === but) return undefined;
      return (
        found && new ForeignLog({ ...found, disk, env, file, folder, kept, keeps: !asReader, parentOf, baseOf, cwdOf })
      );
    },
    refusal(file, but) {
      const found = known(file);
      return found && found.translator.agent !== but ? readOnlyOf(found.translator) : undefined;
    },
    survey(file) {
      const found = known(file, true);
      if (!found) return surveyByName(disk, env, file);
      return surveyFile({ ...found, disk, env, file, baseOf, cwdOf }, parentOf);
    },
  };
}

// --- working directories of Gemini CLI ------------------------------------------------------------------------------

/** Bytes of a list of projects that are read; a project has a hundred. */
const LONGEST_LIST = 4 << 20;

/**
 * Returns the working directory of a session file, which does not have it; undefined if no file names it. The session is in
 * `tmp/<project>/chats/`, and the project's directory is in `tmp/<project>/.project_root`, or in `projects.json` in the parent
 * folder of `tmp`. Older versions named the folder by the SHA-256 of the directory, which `projects.json` may still have.
 * Throws errno errors.
 */
function findGeminiProject(disk: Disk, file: string): string | undefined {
  const project = projectFolder(file);
  if (project === undefined) return undefined;
  const root = readText(disk, join(project, ".project_root"))?.trim();
  if (root !== undefined && isDirectory(root)) return root;
  const listed = tryParseText(readText(disk, join(dirname(dirname(project)), "projects.json")) ?? "");
  const projects = isObject(listed) && isObject(listed.projects) ? listed.projects : {};
  return Object.keys(projects).find((path) => projects[path] === basename(project) && isDirectory(path));
}

/** Returns the folder of a project, above `chats`, also for the file of a subagent, which is a folder deeper. */
function projectFolder(file: string): string | undefined {
  const above = [dirname(file), dirname(dirname(file))].find((folder) => basename(folder) === "chats");
  return above === undefined ? undefined : dirname(above);
}

function isDirectory(path: string): boolean {
  return /^(?:\/|[A-Za-z]:[\\/]|\\\\)/.test(path) && !path.includes("\0") && !path.includes("\n");
}

function readText(disk: Disk, file: string): string | undefined {
  const bytes = readIfFile(() => readBeginning(disk, file, LONGEST_LIST));
  try {
    return bytes === null ? undefined : decodeText(bytes);
  } catch {
    return undefined;
  }
}

// --- the folder of older versions of opencode -----------------------------------------------------------------------

/**
 * Returns the session whose facts are in `file`: `session/<project>/<session>.json`, each message in
 * `message/<session>/<message>.json`, each part in `part/<message>/<part>.json`.
 */
function gatherFolderSession(disk: Disk, file: string, translator: Translator): GatheredSession {
  return {
    translator,
    info: () => stampTogether(disk, file, listFolderFiles(disk, file).slice(1)),
    read: () => readFolderFiles(disk, file),
  };
}

/** Returns the files of a session: that of the facts, then each message, with its parts after it. */
function listFolderFiles(disk: Disk, file: string): string[] {
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

function readFolderFiles(disk: Disk, file: string): GatheredRecords {
  const lost: string[] = [];
  const records: Uint8Array[] = [];
  for (const path of listFolderFiles(disk, file))
    try {
      records.push(readWhole(disk, path));
    } catch (error) {
      if (path === file) throw error;
      lost.push(`${path} cannot be read: its content is missing.`);
    }
  return { records: numberRecords(records), warnings: [], lost };
}
