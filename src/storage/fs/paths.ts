/** Locations of sessions and of our own state (protocol, section 1; session-format reference, section 6). */

import { homedir } from "node:os";
import { basename, isAbsolute, join, resolve } from "node:path";
import { type SessionHeader, toFileNamePart } from "../../core/format/entry.ts";
import type { SessionRoot } from "../../core/ports/health.ts";
import { CONTAINER, findContainer } from "./container-paths.ts";
import { type Disk, exists } from "./disk.ts";
import { getInfo } from "./files.ts";

export interface StoragePaths {
  /** A folder that directly contains all session files; they are matched by the cwd in their header. */
  readonly flat?: string;
  /** The alternative: a folder with one folder for each working directory. */
  readonly root?: string;
  /** The folder of all our files except sessions: locks, leaf positions, catalog, trash. */
  readonly state: string;
}

export type Variables = Readonly<Record<string, string | undefined>>;

/** Finds the locations in the environment. `settings` returns the parsed content of a JSON file, or undefined. */
export function findPaths(
  variables: Variables,
  sessionDir: string | undefined,
  settings: (file: string) => unknown,
): StoragePaths {
  const home = variables.HOME ?? homedir();
  const agent = agentFolder(variables, home);
  const state =
    expand(variables.PI_SESSION_SERVER_STATE_DIR, home) ??
    join(expand(variables.XDG_STATE_HOME, home) ?? join(home, ".local", "state"), "pi-session-server");
  const configured = (settings(join(agent, "settings.json")) as { sessionDir?: unknown } | undefined)?.sessionDir;
  const flat =
    expand(sessionDir, home) ??
    expand(variables.PI_CODING_AGENT_SESSION_DIR, home) ??
    (typeof configured === "string" ? expand(configured, home) : undefined);
  if (flat !== undefined) return { flat: resolve(flat), state: resolve(state) };
  return { root: resolve(expand(variables.PI_SESSIONS_DIR, home) ?? join(agent, "sessions")), state: resolve(state) };
}

/** Returns the folders in which agents look for sessions by default. */
export function findAgentRoots(variables: Variables): SessionRoot[] {
  const home = variables.HOME ?? homedir();
  const pi = resolve(join(agentFolder(variables, home), "sessions"));
  const rust = resolve(expand(variables.PI_SESSIONS_DIR, home) ?? pi);
  if (rust === pi) return [{ path: pi, agents: ["pi", "pi_agent_rust"] }];
  return [
    { path: pi, agents: ["pi"] },
    { path: rust, agents: ["pi_agent_rust"] },
  ];
}

/** Returns Pi's settings files for a working directory: the user's, then the project's, which takes precedence. */
export function listSettingsFiles(variables: Variables, cwd: string): string[] {
  const agent = agentFolder(variables, variables.HOME ?? homedir());
  return [join(agent, "settings.json"), ...(cwd === "" ? [] : [join(cwd, ".pi", "settings.json")])];
}

function agentFolder(variables: Variables, home: string): string {
  return expand(variables.PI_CODING_AGENT_DIR, home) ?? join(home, ".pi", "agent");
}

function expand(path: string | undefined, home: string): string | undefined {
  if (path === undefined || path === "") return undefined;
  return path === "~" || path.startsWith("~/") ? join(home, path.slice(1)) : path;
}

/** Returns the folder name of a working directory. Two may have the same: callers check the header's cwd too. */
export function toFolderName(cwd: string): string {
  return `--${cwd.replace(/^[/\\]/, "").replace(/[/\\:]/g, "-")}--`;
}

/** Returns the path of a new container. */
export function makeContainerPath(paths: StoragePaths, { id, cwd }: { id: string; cwd?: string | null }): string {
  return join(getSessionFolder(paths, cwd ?? ""), `${id}${CONTAINER}`);
}

/** Returns the folder for new sessions of a working directory. */
export function getSessionFolder(paths: StoragePaths, cwd: string): string {
  return paths.flat ?? join(paths.root as string, toFolderName(cwd));
}

export function makeFileName(header: SessionHeader): string {
  return `${toFileNamePart((header.timestamp ?? "").replace(/[:.]/g, "-"))}_${toFileNamePart(header.id)}.jsonl`;
}

export function makeFilePath(paths: StoragePaths, header: SessionHeader): string {
  return join(getSessionFolder(paths, header.cwd ?? ""), makeFileName(header));
}

/** Returns the folder of our own trash. */
export function getTrashFolder({ state }: StoragePaths): string {
  return join(state, "trash");
}

/** Returns the folder of archived sessions. It has the same folders in it as the session folder. */
export function getArchiveFolder({ flat, root, state }: StoragePaths): string {
  // Two roots may have folders of the same names.
  return join(state, "archive", encodeURIComponent(flat ?? (root as string)));
}

/** Yields all folders that may contain sessions, archived or not. */
export function* listAllFolders(paths: StoragePaths, disk: Disk): Generator<string> {
  yield* listSessionFolders(paths, disk);
  yield* listArchivedFolders(paths, disk);
}

/** Yields the folders of archived sessions. */
export function listArchivedFolders(paths: StoragePaths, disk: Disk): Generator<string> {
  const { flat, state } = paths;
  const archive = getArchiveFolder(paths);
  return listSessionFolders(flat === undefined ? { root: archive, state } : { flat: archive, state }, disk);
}

/** Yields all folders that may contain session files. */
export function* listSessionFolders(paths: StoragePaths, disk: Disk): Generator<string> {
  if (paths.flat !== undefined) {
    if (exists(disk, paths.flat)) yield paths.flat;
    return;
  }
  const root = paths.root as string;
  if (!exists(disk, root)) return;
  for (const name of disk.names(root)) {
    const folder = join(root, name);
    if (isSessionFolder(disk, folder) && getInfo(disk, folder)?.kind === "folder") yield folder;
  }
}

/** Returns whether a folder in the root may hold sessions: a container has a header, but is no directory's folder. */
export function isSessionFolder(disk: Disk, folder: string): boolean {
  return (
    !basename(folder).startsWith(".") && findContainer(join(folder, "-"), (part) => exists(disk, part)) === undefined
  );
}

/** Returns whether a session may have this file name. Temporary and backup files do not match. */
export function isSessionName(name: string): boolean {
  return name.endsWith(".jsonl") && !name.startsWith(".");
}

/** Returns a host's path as an absolute one. A relative path begins in `cwd`. */
export function toAbsolutePath(path: string, cwd: string): string {
  return isAbsolute(path) ? path : resolve(cwd, path);
}

/**
 * Returns the variables without those that open the fleet's database: the agent runs commands of a model. Every agent
 * must be started with these.
 */
export function makeAgentVariables(variables: Variables): NodeJS.ProcessEnv {
  const { PI_FLEET_URL, PGPASSWORD, ...rest } = variables;
  return rest;
}
