/** Where other agents keep their sessions on this machine. */

import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { SourceBase } from "../../core/foreign/translator.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { infoOrNull, readIfThere, withFile } from "../fs/files.ts";
import { entriesIn } from "../fs/folders.ts";
import type { Variables } from "../fs/paths.ts";

/** A folder in which an agent keeps session files. */
export interface AgentPlace {
  readonly agent: string;
  readonly folder: string;
  /** Folders between it and a file at most. */
  readonly depth: number;
  /** Whether a file of this name may be a session. Its content says whether it is one. */
  readonly fits: (name: string) => boolean;
  /** Folder in which the agent notes its processes, with the sessions that these have open (`live.ts`). */
  readonly registry?: string;
  /** Returns a text that several files of one session have in their names, of which the last is all of it. */
  readonly sessionIn?: (name: string) => string | undefined;
}

/** Returns the thread of a rollout file, which has several when something was taken back. */
function threadIn(name: string): string | undefined {
  return /^rollout-.*?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_[0-9a-f-]+)?\.jsonl$/.exec(name)?.[1];
}

const isLines = (name: string): boolean => name.endsWith(".jsonl");

/** Returns the folders of all agents that a translator is there for. A new agent is a new line here. */
export function agentPlaces(variables: Variables): AgentPlace[] {
  const home = variables.HOME ?? homedir();
  const within = (variable: string, ...otherwise: string[]): string => {
    const named = variables[variable];
    return resolve(named === undefined || named === "" ? join(home, ...otherwise) : named);
  };
  const claude = within("CLAUDE_CONFIG_DIR", ".claude");
  const codex = within("CODEX_HOME", ".codex");
  return [
    // <slug>/<sessionId>.jsonl and <slug>/<sessionId>/subagents/agent-<id>.jsonl
    {
      agent: "claude",
      folder: join(claude, "projects"),
      depth: 3,
      fits: isLines,
      registry: join(claude, "sessions"),
    },
    // <year>/<month>/<day>/rollout-<time>-<id>.jsonl
    { agent: "codex", folder: join(codex, "sessions"), depth: 3, fits: isLines, sessionIn: threadIn },
    { agent: "codex", folder: join(codex, "archived_sessions"), depth: 3, fits: isLines, sessionIn: threadIn },
  ];
}

/**
 * Yields the files in places that may be sessions, in no order. Folders that cannot be read have none. No link is
 * followed: it may lead anywhere, and in circles.
 */
export function* filesIn(disk: Disk, places: readonly AgentPlace[]): Generator<string> {
  for (const { folder, depth, fits, sessionIn } of places) {
    const last = new Map<string, { readonly name: string; readonly path: string }>();
    const open: [folder: string, depth: number][] = [[folder, depth]];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [at, left] = next;
      for (const { name, kind } of ifAllowed(() => entriesIn(disk, at)) ?? [])
        if (kind === "folder") {
          if (left > 0) open.push([join(at, name), left - 1]);
        } else if (kind === "file" && fits(name)) {
          const session = sessionIn?.(name);
          if (session === undefined) yield join(at, name);
          else if (name > (last.get(session)?.name ?? "")) last.set(session, { name, path: join(at, name) });
        }
    }
    for (const { path } of last.values()) yield path;
  }
}

/** Returns the file of the session with an agent's own id that another one was made from, or by. */
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
  if (beside !== file && exists(disk, beside)) return beside;
  return rolloutsOf(disk, file, nativeId).at(-1);
}

/** Returns the file of a session of which the beginning is continued: one that has a whole line end there. */
export function baseFile(disk: Disk, file: string, { nativeId, end }: SourceBase): string | undefined {
  return rolloutsOf(disk, file, nativeId).find((path) => {
    if (end === 0) return true;
    const info = infoOrNull(disk, path);
    if (path === file || info?.kind !== "file" || info.size < end) return false;
    try {
      return withFile(disk, disk.openRead(path), (fd) => readIfThere(disk, fd, end - 1, 1)?.[0] === 0x0a);
    } catch {
      return false;
    }
  });
}

const ROLLOUT_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const DAY = 86_400_000;

/**
 * Returns the files of a thread of Codex's, the oldest first: rollout-<time>-<thread>.jsonl and, after something was
 * taken back, rollout-<time>-<thread>_<segment>.jsonl. They are in the folders of days: that of the thread, which its
 * id tells but for the time zone, and that of the file that asks.
 */
function rolloutsOf(disk: Disk, file: string, threadId: string): string[] {
  if (!ROLLOUT_ID.test(threadId)) return [];
  const made = Number.parseInt(threadId.replace("-", "").slice(0, 12), 16);
  const days = [-1, 0, 1].map((n) => new Date(made + n * DAY)).filter((day) => Number.isFinite(day.getTime()));
  const own = dirname(file);
  const home = dirname(dirname(dirname(dirname(own))));
  const root = dirname(dirname(dirname(own)));
  const folders = new Set([
    own,
    ...days.map((day) => join(root, ...day.toISOString().slice(0, 10).split("-"))),
    ...["archived_sessions", "sessions"].flatMap((name) => [join(home, name), join(dirname(own), name)]),
  ]);
  const isOf = (name: string): boolean => {
    const [, rest] = name.split(`-${threadId}`);
    return name.startsWith("rollout-") && rest !== undefined && /^(?:_[0-9a-f-]+)?\.jsonl$/.test(rest);
  };
  return [...folders]
    .flatMap((folder) =>
      (ifAllowed(() => entriesIn(disk, folder)) ?? []).map(({ name, kind }) => ({ folder, name, kind })),
    )
    .filter(({ name, kind }) => kind === "file" && isOf(name))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ folder, name }) => join(folder, name))
    .filter((path) => path !== file);
}

/** Returns the result of `find`; undefined where it would look outside of the folders that this server may use. */
export function ifAllowed<T>(find: () => T | undefined): T | undefined {
  try {
    return find();
  } catch (error) {
    if (!isErrno(error) && !(error instanceof Failure)) throw error;
    return undefined;
  }
}
