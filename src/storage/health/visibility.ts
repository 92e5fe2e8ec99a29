/** Finds sessions that agents do not show, or do not continue from their leaf (session-format reference, 6 and 8). */

import { basename, dirname } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { CURRENT_VERSION } from "../../core/format/entry.ts";
import type { Agent, HiddenSession } from "../../core/ports/health.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { readBegun } from "../fs/header.ts";
import { type StoragePaths, toFolderName } from "../fs/paths.ts";

type Hidden = Pick<HiddenSession, "reason" | "text" | "agents">;

const BOTH: readonly Agent[] = ["pi", "pi_agent_rust"];

/** Returns why agents do not show a session that can be opened; null if they do. Throws errno errors. */
export function explainHidden(disk: Disk, paths: StoragePaths, file: string): Hidden | null {
  if (isContainerName(file))
    return { reason: "container", text: "it is in a container, and agents look for session files", agents: BOTH };
  const { header, isLate } = readBegun(disk, file) ?? {};
  if (header === undefined || isLate)
    return {
      reason: "no_header",
      text: "its first line is no header, and agents take it for no session",
      agents: BOTH,
    };
  const { version = 1, cwd } = header;
  if (typeof version !== "number" || version > CURRENT_VERSION)
    return {
      reason: "newer_version",
      text: `its version is ${String(version)}, newer than this program and pi_agent_rust know`,
      agents: ["pi_agent_rust"],
    };
  const place = placeProblem(disk, paths, file, cwd);
  if (place !== null || version === CURRENT_VERSION) return place;
  const text = `its version is ${version}, which pi_agent_rust does not read; Pi, or an append here, raises it`;
  return { reason: "older_version", text, agents: ["pi_agent_rust"] };
}

/** Returns why a session is not shown, or not continued, by its directory and the folder that it lies in. */
function placeProblem(disk: Disk, { flat }: StoragePaths, file: string, cwd: unknown): Hidden | null {
  if (typeof cwd !== "string" || cwd === "")
    return { reason: "no_cwd", text: "its header names no working directory", agents: BOTH };
  if (flat === undefined && basename(dirname(file)) !== toFolderName(cwd))
    return { reason: "other_folder", text: `it is not in the folder of its directory ${cwd}`, agents: BOTH };
  if (isGone(disk, cwd))
    return { reason: "cwd_missing", text: `its directory ${cwd} does not exist any more`, agents: BOTH };
  return null;
}

/** Returns whether a directory does not exist; false where that may not be looked at. */
function isGone(disk: Disk, path: string): boolean {
  try {
    return disk.info(path).kind !== "folder";
  } catch (error) {
    return isMissing(error);
  }
}
