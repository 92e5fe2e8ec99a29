/** Where other agents keep their sessions on this machine. */

import { basename, dirname, join } from "node:path";
import { type Disk, exists } from "../fs/disk.ts";

/** Returns the file of the session with an agent's own id that another one, which it made, lies beside. */
export function parentFile(disk: Disk, file: string, nativeId: string): string | undefined {
  // No id of a file may become a part of a path unchecked.
  if (!/^[A-Za-z0-9-]{1,100}$/.test(nativeId)) return undefined;
  // Claude Code: <sessionId>/subagents/agent-<id>.jsonl beside <sessionId>.jsonl.
  let folder = dirname(file);
  for (let up = 0; up < 4; up++, folder = dirname(folder)) {
    if (basename(folder) !== nativeId) continue;
    const parent = join(dirname(folder), `${nativeId}.jsonl`);
    return exists(disk, parent) ? parent : undefined;
  }
  const beside = join(dirname(file), `${nativeId}.jsonl`);
  return beside !== file && exists(disk, beside) ? beside : undefined;
}
