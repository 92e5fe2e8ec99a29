/** Opens files of other agents, for reading only. */

import { join } from "node:path";
import { isErrno } from "../../../core/errno.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { ForeignFiles } from "../../../storage/foreign-module.ts";
import { isContainerName } from "../../../storage/fs/container-paths.ts";
import type { Disk } from "../../../storage/fs/disk.ts";
import { findAllowed } from "../../../storage/fs/files.ts";
import { clineHistory, rooHistory, toRooTranslator } from "../read/cline/cline.ts";
import { opencodeFacts } from "../read/opencode/opencode.ts";
import type { SourceBase, Translator } from "../read/translator.ts";
import { gatherClineTask } from "./cline-task.ts";
import { readCompressedRollout, surveyByName } from "./compressed.ts";
import { findInSameDatabase, gatherDatabaseSession } from "./databases.ts";
import { DerivationCache } from "./derivation-cache.ts";
import type { GatheredSession } from "./gathered.ts";
import { findGeminiProject } from "./gemini-projects.ts";
import { InnerSessions } from "./inner-sessions.ts";
import { ForeignLog, readOnlyOf } from "./log.ts";
import { gatherFolderSession } from "./opencode-folder.ts";
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
