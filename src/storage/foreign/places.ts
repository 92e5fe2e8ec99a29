/** Where other agents keep their sessions on this machine. */

import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { type Disk, exists } from "../fs/disk.ts";
import { entriesIfListed } from "../fs/folders.ts";
import type { Variables } from "../fs/paths.ts";

/** A folder in which an agent keeps session files. */
export interface AgentPlace {
  readonly agent: string;
  readonly folder: string;
  /** Folders between it and a file at most. */
  readonly depth: number;
  /** Whether a file of this name may be a session. Its content says whether it is one. */
  readonly fits: (name: string) => boolean;
}

const isLines = (name: string): boolean => name.endsWith(".jsonl");

/** Returns the folders of all agents that a translator is there for. A new agent is a new line here. */
export function agentPlaces(variables: Variables): AgentPlace[] {
  const home = variables.HOME ?? homedir();
  const within = (variable: string, ...otherwise: string[]): string => {
    const named = variables[variable];
    return resolve(named === undefined || named === "" ? join(home, ...otherwise) : named);
  };
  const codex = within("CODEX_HOME", ".codex");
  return [
    // <slug>/<sessionId>.jsonl and <slug>/<sessionId>/subagents/agent-<id>.jsonl
    { agent: "claude", folder: join(within("CLAUDE_CONFIG_DIR", ".claude"), "projects"), depth: 3, fits: isLines },
    // <year>/<month>/<day>/rollout-<time>-<id>.jsonl
    { agent: "codex", folder: join(codex, "sessions"), depth: 3, fits: isLines },
    { agent: "codex", folder: join(codex, "archived_sessions"), depth: 3, fits: isLines },
  ];
}

/**
 * Yields the files in places that may be sessions, in no order. Folders that cannot be read have none. No link is
 * followed: it may lead anywhere, and in circles.
 */
export function* filesIn(disk: Disk, places: readonly AgentPlace[]): Generator<string> {
  for (const { folder, depth, fits } of places) {
    const open: [folder: string, depth: number][] = [[folder, depth]];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [at, left] = next;
      for (const { name, kind } of entriesIfListed(disk, at))
        if (kind === "folder") {
          if (left > 0) open.push([join(at, name), left - 1]);
        } else if (kind === "file" && fits(name)) yield join(at, name);
    }
  }
}

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
