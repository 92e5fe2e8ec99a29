/** Opens files of other agents, for reading only. */

import { join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import type { Failure } from "../../core/failure.ts";
import { asOfRoo, clineHistory, rooHistory } from "../../core/foreign/cline/cline.ts";
import { opencodeFacts } from "../../core/foreign/opencode/opencode.ts";
import type { SourceBase, Translator } from "../../core/foreign/translator.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { clineTask } from "./cline-task.ts";
import { compressedRollout, surveyedByName } from "./compressed.ts";
import { besideInDatabase, sessionInDatabase } from "./databases.ts";
import type { GatheredSession } from "./gathered.ts";
import { geminiProject } from "./gemini-projects.ts";
import { InnerSessions } from "./inner.ts";
import { KeptDerivations } from "./kept.ts";
import { ForeignLog, readOnlyOf } from "./log.ts";
import { sessionInFolder } from "./opencode-folder.ts";
import { type AgentPlace, baseFile, extensionOf, ifAllowed, parentFile } from "./places.ts";
import { recognised } from "./source.ts";
import { type Surveyed, survey } from "./survey.ts";

export interface ForeignStore {
  /**
   * Opens a file that is one of another agent's; returns undefined for any other, and where none is. `but`: an agent
   * whose sessions other backends may know better. `asReader`: it is read once, so that nothing is kept for a next time.
   */
  open(file: string, options?: { readonly but?: string; readonly asReader?: boolean | undefined }): Log | undefined;
  /** Returns why a file cannot be changed that is one of another agent's; undefined for any other. `but`: as for open. */
  refusal(file: string, but?: string): Failure | undefined;
  /** Returns what lists show of such a file; undefined for any other. Throws storage_failed. */
  survey(file: string): Surveyed | undefined;
}

/** Sessions of other agents: where they may be, and how they are read. */
export interface AgentSessions {
  readonly places: readonly AgentPlace[];
  readonly store: ForeignStore;
}

/**
 * `state`: our state folder, in which what is derived is kept meanwhile. `worthKeeping`: bytes of a file from which on it
 * is.
 */
export function foreignStore(disk: Disk, env: Env, state: string, worthKeeping?: number): ForeignStore {
  const folder = join(state, "foreign");
  const kept = new KeptDerivations(disk, folder, env.sha256, worthKeeping);
  const parentOf = (file: string, nativeId: string): string | undefined =>
    ifAllowed(() => parentFile(disk, file, nativeId) ?? besideInDatabase(disk, file, nativeId));
  const baseOf = (file: string, base: SourceBase): string | undefined => ifAllowed(() => baseFile(disk, file, base));
  const cwdOf = (file: string): string | undefined => ifAllowed(() => geminiProject(disk, file));
  const inner = new InnerSessions(disk);
  const known = (
    file: string,
    isForList = false,
  ): { translator: Translator; gathered?: GatheredSession } | undefined => {
    if (isContainerName(file)) return undefined;
    try {
      const found = recognised(disk, file);
      const translator = found && extensionOf(file) === rooHistory.agent ? asOfRoo(found) : found;
      if (translator === clineHistory || translator === rooHistory)
        return { translator, gathered: isForList ? undefined : clineTask(disk, file, translator) };
      if (translator === opencodeFacts) return { translator, gathered: sessionInFolder(disk, file, translator) };
      if (translator) return { translator };
      const gathered = compressedRollout(disk, file) ?? inner.session(file) ?? sessionInDatabase(disk, file);
      return gathered && { translator: gathered.translator, gathered };
    } catch (error) {
      // Those who open it as a session say why it cannot be read.
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
      if (!found) return surveyedByName(disk, env, file);
      return survey({ ...found, disk, env, file, baseOf, cwdOf }, parentOf);
    },
  };
}
