/** The places of other agents' sessions on this machine. */

import { homedir } from "node:os";
import { basename, dirname, join, resolve, sep } from "node:path";
import { isJson } from "../../../core/json/json.ts";
import type { UnreadFile } from "../../../core/ports/catalog.ts";
import { type Disk, exists, type FileInfo } from "../../../storage/fs/disk.ts";
import { findAllowed, getInfo, readBeginning, readIfThere, useFile } from "../../../storage/fs/files.ts";
import { listFolder } from "../../../storage/fs/folders.ts";
import type { ListFolder } from "../../../storage/fs/known-folders.ts";
import { findAgentRoots, type Variables } from "../../../storage/fs/paths.ts";
import { isSameStamp, isYoung, readDiskClock } from "../../../storage/fs/stamps.ts";
import { holdsMessage } from "../read/cline/cline.ts";
import { BYTES_SEEN, type SourceBase } from "../read/translator.ts";
import { TASK_SCREEN } from "./cline-task.ts";
import { CAN_DECOMPRESS, isCompressed } from "./compressed.ts";
import { findUnreadDatabase } from "./databases.ts";
import { TASK_MESSAGES } from "./source.ts";

/** A folder of session files of one agent. */
export interface AgentPlace {
  readonly agent: string;
  readonly folder: string;
  /** Folders between it and a file at most. */
  readonly depth: number;
  /** Fewest folders between it and a file; by default none. */
  readonly least?: number;
  /** Returns whether a file of this name may be a session, among others in its folder. Its content decides. */
  readonly fits: (name: string) => boolean;
  /** Files that count in the place of another one in their folder, if they hold a message; that one by its name. */
  readonly better?: Readonly<Record<string, string>>;
  /** Returns whether a folder within may have sessions; `level` is 1 in the place itself. By default, each may. */
  readonly enters?: (name: string, level: number) => boolean;
  /** The agent's folder of process notes, with the sessions that these processes have open (`live.ts`). */
  readonly registry?: string;
  /** True if the files are databases, which have many sessions each. */
  readonly isDatabase?: boolean;
  /** Databases with the migrated contents of these files; the files stay as they were. */
  readonly movedTo?: readonly string[];
  /** Returns a text that several files of one session have in their names; the last of them has all of it. */
  readonly sessionIn?: (name: string) => string | undefined;
  /** Returns a text that the files of one session have in their names and beginnings; the longest of them counts. */
  readonly idIn?: (name: string) => string | undefined;
}

/** Returns the thread of a rollout file, which has several when something was taken back. */
function threadIn(name: string): string | undefined {
  return /^rollout-.*?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_[0-9a-f-]+)?\.jsonl(?:\.zst)?$/.exec(name)?.[1];
}

/** Codex compresses rollouts after a while, and then removes the plain ones. */
const isRollout = (name: string): boolean => isLines(name) || name.endsWith(".jsonl.zst");
const isLines = (name: string): boolean => name.endsWith(".jsonl");
const isMessages = (name: string): boolean => name.endsWith(".messages.json");

/** Recognises the list of messages of a task of Cline, Roo Code or Kilo Code, and the list that a person sees. */
const isTask = (name: string): boolean => name === TASK_MESSAGES || name === TASK_SCREEN;
/** A task's screen has less than its messages. */
const TASK = { fits: isTask, better: { [TASK_SCREEN]: TASK_MESSAGES } };

/** Editors that run Cline and its relatives, by the names of their folders. */
const EDITORS = ["Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf"];
/** Folders of editors that run on another machine than their window. */
const REMOTE_EDITORS = [".vscode-server", ".vscode-server-insiders", ".cursor-server", ".windsurf-server"];
const EXTENSIONS = [
  { agent: "cline", extension: "saoudrizwan.claude-dev" },
  { agent: "roo", extension: "rooveterinaryinc.roo-cline" },
  { agent: "roo", extension: "kilocode.kilo-code" },
];

/** Returns the places of extensions: <user folder>/globalStorage/<extension>/tasks/<task>/. */
function extensionPlaces(home: string, variables: Variables): AgentPlace[] {
  const { platform } = process;
  const config =
    platform === "darwin"
      ? join(home, "Library", "Application Support")
      : platform === "win32"
        ? variables.APPDATA || join(home, "AppData", "Roaming")
        : variables.XDG_CONFIG_HOME || join(home, ".config");
  const users = [
    ...EDITORS.map((editor) => join(config, editor, "User")),
    ...REMOTE_EDITORS.map((editor) => join(home, editor, "data", "User")),
  ];
  return users.flatMap((user) =>
    EXTENSIONS.map(({ agent, extension }) => {
      const folder = resolve(user, "globalStorage", extension, "tasks");
      return { agent, folder, depth: 1, ...TASK };
    }),
  );
}

function gooseData(home: string, variables: Variables): string {
  const { APPDATA } = variables;
  if (process.platform === "win32") return join(APPDATA || join(home, "AppData", "Roaming"), "Block", "goose", "data");
  return join(dataFolder(home, variables), "goose");
}

function dataFolder(home: string, { XDG_DATA_HOME }: Variables): string {
  return XDG_DATA_HOME || join(home, ".local", "share");
}

/** Returns the places of opencode: `opencode.db`, and the folder of older versions. Other channels have a name more. */
function opencodePlaces(home: string, variables: Variables): AgentPlace[] {
  const data = resolve(dataFolder(home, variables), "opencode");
  const named = variables.OPENCODE_DB || "opencode.db";
  const database = resolve(data, named);
  return [
    {
      agent: "opencode",
      folder: dirname(database),
      depth: 0,
      isDatabase: true,
      fits: (name) => name === basename(database) || /^opencode(?:-[a-z0-9._-]+)?\.db$/i.test(name),
    },
    {
      agent: "opencode",
      folder: join(data, "storage", "session"),
      depth: 1,
      least: 1,
      fits: (name) => /^ses_.*\.json$/.test(name),
      movedTo: [database],
    },
  ];
}

/** Returns the places of Goose: `sessions.db`, and <id>.jsonl of older versions. */
function goosePlaces(home: string, variables: Variables): AgentPlace[] {
  const folder = resolve(gooseData(home, variables), "sessions");
  const database = join(folder, "sessions.db");
  return [
    { agent: "goose", folder, depth: 0, isDatabase: true, fits: (name) => name === "sessions.db" },
    { agent: "goose", folder, depth: 0, fits: isLines, movedTo: [database] },
  ];
}

/** Returns the places of pi_agent_rust, which has a database for each session: <working directory>/<id>.sqlite. */
function rustPlaces(variables: Variables): AgentPlace[] {
  const isSession = (name: string): boolean => name.endsWith(".sqlite") && name !== "session-index.sqlite";
  return findAgentRoots(variables)
    .filter(({ agents }) => agents.includes("pi_agent_rust"))
    .map(({ path }) => ({ agent: "pirust", folder: path, depth: 1, isDatabase: true, fits: isSession }));
}

/** Returns the places of oh-my-pi: <directory>/<time>_<id>.jsonl, and the files of subagents in a folder of that name. */
function ompPlaces(home: string, variables: Variables): AgentPlace[] {
  const folder = join(home, ".omp");
  const profile = ["", "agent", "sessions"];
  return [
    { agent: "omp", folder: resolve(folder, "agent", "sessions"), depth: 3, least: 1, fits: isLines },
    {
      agent: "omp",
      folder: resolve(folder, "profiles"),
      depth: 6,
      least: 4,
      fits: isLines,
      enters: (name, level) => !profile[level - 1] || name === profile[level - 1],
    },
    {
      agent: "omp",
      folder: resolve(dataFolder(home, variables), "omp", "sessions"),
      depth: 3,
      least: 1,
      fits: isLines,
    },
  ];
}

/** Returns the folders of all agents that a translator is there for. A new agent is a new line here. */
export function getAgentPlaces(variables: Variables): AgentPlace[] {
  const home = variables.HOME ?? homedir();
  const within = (variable: string, ...otherwise: string[]): string => {
    const named = variables[variable];
    return resolve(named === undefined || named === "" ? join(home, ...otherwise) : named);
  };
  const claude = within("CLAUDE_CONFIG_DIR", ".claude");
  const codex = within("CODEX_HOME", ".codex");
  const gemini = join(variables.GEMINI_CLI_HOME || home, ".gemini");
  const clineData = variables.CLINE_DATA_DIR || join(variables.CLINE_DIR || join(home, ".cline"), "data");
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
    { agent: "codex", folder: join(codex, "sessions"), depth: 3, fits: isRollout, sessionIn: threadIn },
    { agent: "codex", folder: join(codex, "archived_sessions"), depth: 3, fits: isRollout, sessionIn: threadIn },
    // <id>/events.jsonl, and <id>.jsonl of older versions
    { agent: "copilot", folder: join(within("COPILOT_HOME", ".copilot"), "session-state"), depth: 1, fits: isLines },
    // <project>/chats/session-<time>-<id>.jsonl, and chats/<id>/<id>.jsonl of subagents
    {
      agent: "gemini",
      folder: resolve(gemini, "tmp"),
      depth: 3,
      least: 2,
      fits: (name) => isLines(name) || name.endsWith(".json"),
      enters: (name, level) => level !== 2 || name === "chats",
      idIn: geminiIdIn,
    },
    // <id>/<id>.messages.json, and in the same folder those of subagents
    {
      agent: "cline",
      folder: resolve(variables.CLINE_SESSION_DATA_DIR || join(clineData, "sessions")),
      depth: 3,
      fits: isMessages,
    },
    { agent: "cline", folder: resolve(clineData, "tasks"), depth: 1, ...TASK },
    ...opencodePlaces(home, variables),
    ...goosePlaces(home, variables),
    ...rustPlaces(variables),
    ...ompPlaces(home, variables),
    ...extensionPlaces(home, variables),
  ];
}

/** A file that may be a session. */
interface FoundFile {
  readonly name: string;
  readonly path: string;
  /** A text that other files of the same session have in their names, too. */
  readonly session: string | undefined;
}

/**
 * Yields the files in places that may be sessions, in no order. Unreadable folders have none. No link is followed: it
 * may lead anywhere, and in circles.
 */
export function* listFiles(
  disk: Disk,
  places: readonly AgentPlace[],
  list: ListFolder = (folder) => listFolder(disk, folder),
): Generator<string> {
  for (const place of places) {
    const last = new Map<string, FoundFile>();
    for (const files of listingsOf(place, list))
      for (const found of files) {
        const { session } = found;
        if (place.better && !isBest(disk, found, files, place.better)) continue;
        if (place.idIn && !isLongest(disk, found, files, place.idIn)) continue;
        if (session === undefined) yield found.path;
        else if (isAfter(found.name, last.get(session)?.name)) last.set(session, found);
      }
    for (const { path } of last.values()) yield path;
  }
}

/** Returns the databases, tasks and compressed rollouts in the places of agents that nothing can be read from. */
export function listUnread(
  disk: Disk,
  places: readonly AgentPlace[],
  list?: ListFolder,
  canDecompress: boolean = CAN_DECOMPRESS,
): UnreadFile[] {
  const found: UnreadFile[] = [];
  for (const place of canDecompress ? [] : places.filter(({ sessionIn }) => sessionIn)) {
    const count = [...listFiles(disk, [place], list)].filter(isCompressed).length;
    if (count > 0) found.push(unreadRollouts(place, count));
  }
  for (const place of places.filter(({ isDatabase, better }) => isDatabase || better))
    for (const file of listFiles(disk, [place], list)) {
      const unread = findAllowed(() => (place.isDatabase ? findUnreadDatabase : unreadTask)(disk, file, place.agent));
      if (unread) found.push(unread);
    }
  return found;
}

/** Returns whether no better file in the folder holds anything; of empty ones, the better one counts. */
function isBest(
  disk: Disk,
  own: FoundFile,
  files: readonly FoundFile[],
  better: NonNullable<AgentPlace["better"]>,
): boolean {
  const { name } = own;
  const holds = (one: FoundFile): boolean => canBeRead(disk, one.path);
  const other = files.find((one) => one.name === better[name]);
  if (other) return !holds(other) && holds(own);
  const worse = files.find((one) => better[one.name] === name);
  return !worse || holds(own) || !holds(worse);
}

/** Returns whether no other file of the same session has more. Gemini CLI begins another one now and then. */
function isLongest(
  disk: Disk,
  own: FoundFile,
  files: readonly FoundFile[],
  idIn: NonNullable<AgentPlace["idIn"]>,
): boolean {
  const text = idIn(own.name);
  const others = text === undefined ? [] : files.filter((one) => one !== own && idIn(one.name) === text);
  if (others.length === 0) return true;
  const sizeOf = ({ path }: FoundFile): number => findAllowed(() => getInfo(disk, path)?.size) ?? 0;
  const idOf = ({ path }: FoundFile): string | undefined => findAllowed(() => geminiIdOf(disk, path));
  const [size, id] = [sizeOf(own), idOf(own)];
  return others.every((one) => {
    if (id === undefined || idOf(one) !== id) return true;
    const other = sizeOf(one);
    return other < size || (other === size && one.name < own.name);
  });
}

function unreadRollouts({ agent, folder }: AgentPlace, count: number): UnreadFile {
  const what = count === 1 ? "One session" : `${count} sessions`;
  const text = `${what} below ${folder} ${count === 1 ? "is" : "are"} compressed with zstd, which this version of Node cannot read. Nothing is wrong with ${count === 1 ? "it" : "them"}. Use Node 22.15 or newer.`;
  return { path: folder, agent, text, isDamaged: false };
}

/** Whether a file of a task holds a message, with the stamp of the file at that time. */
interface KnownTask {
  readonly info: FileInfo;
  readonly holds: boolean;
}

/** Answers by path: each list asks about each file several times. */
const answers = new WeakMap<Disk, Map<string, KnownTask>>();

/** Returns whether a file of a task has a message that can be read. */
function canBeRead(disk: Disk, path: string): boolean {
  const info = getInfo(disk, path);
  if (info === null) return false;
  const known = answers.get(disk) ?? new Map<string, KnownTask>();
  answers.set(disk, known);
  const before = known.get(path);
  if (before && isSameStamp(before.info, info)) return before.holds;
  const bytes = findAllowed(() => readBeginning(disk, path, BYTES_SEEN + 1));
  const holds = bytes ? holdsMessage(bytes, bytes.length > BYTES_SEEN) : false;
  // It may change in this moment and keep its stamp.
  if (isYoung(info, readDiskClock(disk))) known.delete(path);
  else known.set(path, { info, holds });
  return holds;
}

/** Returns an unreadable file of a task, unless it is empty. */
function unreadTask(disk: Disk, path: string, agent: string): UnreadFile | undefined {
  const bytes = canBeRead(disk, path) ? undefined : findAllowed(() => readBeginning(disk, path, BYTES_SEEN));
  const text = bytes && Buffer.from(bytes).toString("latin1");
  if (!text || /^\s*(?:\[\s*\]|\{\s*\}|null)?\s*$/.test(text)) return undefined;
  // The end of a large one is not looked at.
  const isDamaged = !(isJson(bytes, 0) || (bytes.length === BYTES_SEEN && /^\s*[[{]/.test(text)));
  const sentence = isDamaged
    ? "is damaged, so that no message of the task can be read. Restore it from a backup."
    : "has nothing that this program knows as a message. Nothing is wrong with it. A newer version of this program may read it.";
  return { path, agent, text: `${path} ${sentence}`, isDamaged };
}

/** The agent whose extension of an editor has a file in its folder. */
export function getExtension(file: string): string | undefined {
  const folders = file.split(sep);
  return EXTENSIONS.find(({ extension }) => folders.includes(extension))?.agent;
}

/** Returns whether a file is that of a later segment, or the plain one of the same. */
function isAfter(name: string, other: string | undefined): boolean {
  if (other === undefined) return true;
  const [own, before] = [name, other].map((one) => one.replace(/\.zst$/, ""));
  return own > before || (own === before && name === own);
}

/** Yields the files in the folders of a place. */
function* listingsOf(
  { folder, depth, least = 0, fits, enters, sessionIn }: AgentPlace,
  list: ListFolder,
): Generator<readonly FoundFile[]> {
  const open: [folder: string, level: number][] = [[folder, 0]];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const [within, level] = next;
    const files: FoundFile[] = [];
    for (const { name, kind } of findAllowed(() => list(within)) ?? []) {
      const path = join(within, name);
      if (kind === "file" && level >= least && fits(name)) files.push({ name, path, session: sessionIn?.(name) });
      if (kind === "folder" && level < depth && enters?.(name, level + 1) !== false) open.push([path, level + 1]);
    }
    yield files;
  }
}

/** Returns the file of the session with an agent's own id that another one was made from, or by. */
export function findParentFile(disk: Disk, file: string, nativeId: string): string | undefined {
  // No id of a file may become a part of a path unchecked.
  if (!/^[A-Za-z0-9_-]{1,100}$/.test(nativeId)) return undefined;
  const found = siblingPaths(file, nativeId).find((path) => path !== file && exists(disk, path));
  return found ?? geminiParent(disk, file, nativeId) ?? rolloutsOf(disk, file, nativeId).at(-1);
}

/** Returns the paths that the session with an id may have, as they follow from that of another one of the agent's. */
function siblingPaths(file: string, nativeId: string): string[] {
  const own = dirname(file);
  const above = dirname(own);
  const folders = [own, above, dirname(above), dirname(dirname(above))];
  return [
    // Claude Code: <sessionId>/subagents/agent-<id>.jsonl next to <sessionId>.jsonl.
    ...folders.filter((folder) => basename(folder) === nativeId).map((folder) => `${folder}.jsonl`),
    join(own, `${nativeId}.jsonl`),
    // opencode's older folder.
    join(own, `${nativeId}.json`),
    // Cline: the files of subagents are with that of the session that began them.
    ...[own, join(above, nativeId), join(dirname(above), nativeId)].map((at) => join(at, `${nativeId}.messages.json`)),
    // Copilot CLI: <id>/events.jsonl, older <id>.jsonl.
    join(above, nativeId, "events.jsonl"),
    join(own, nativeId, "events.jsonl"),
    join(above, `${nativeId}.jsonl`),
  ];
}

/** Returns the session of Gemini CLI's that began a subagent: chats/session-<time>-<id>.jsonl above chats/<id>/. */
function geminiParent(disk: Disk, file: string, nativeId: string): string | undefined {
  const own = dirname(file);
  if (basename(own) !== nativeId) return undefined;
  const chats = dirname(own);
  // The name has the beginning of the id only.
  const ending = new RegExp(`^session-.*-${nativeId.slice(0, 8)}\\.jsonl?$`);
  const files = listFolder(disk, chats)
    .filter(({ name, kind }) => kind === "file" && ending.test(name))
    .map(({ name }) => ({ name, path: join(chats, name), session: undefined }))
    .filter(({ path }) => geminiIdOf(disk, path) === nativeId);
  return files.find((one) => isLongest(disk, one, files, geminiIdIn))?.path;
}

/** Returns the beginning of a session's id that the name of its file has. */
function geminiIdIn(name: string): string | undefined {
  return /^session-.*-([0-9a-f]{8})\.jsonl?$/.exec(name)?.[1];
}

/** Bytes at the beginning of a file of Gemini CLI that have the session's id. */
const GEMINI_FACTS = 4096;

function geminiIdOf(disk: Disk, path: string): string | undefined {
  const bytes = readBeginning(disk, path, GEMINI_FACTS);
  return /"sessionId"\s*:\s*"([^"]+)"/.exec(bytes === null ? "" : new TextDecoder().decode(bytes))?.[1];
}

/** Returns the file of a session whose beginning another one continues: a whole line ends there. */
export function findBaseFile(disk: Disk, file: string, { nativeId, end }: SourceBase): string | undefined {
  return rolloutsOf(disk, file, nativeId).find((path) => {
    if (end === 0) return true;
    const info = getInfo(disk, path);
    if (path === file || info?.kind !== "file" || info.size < end) return false;
    try {
      return useFile(disk, disk.openRead(path), (fd) => readIfThere(disk, fd, end - 1, 1)?.[0] === 0x0a);
    } catch {
      return false;
    }
  });
}

const ROLLOUT_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const DAY = 86_400_000;

/**
 * Returns the files of a thread of Codex, the oldest first: rollout-<time>-<thread>.jsonl and, after a rollback,
 * rollout-<time>-<thread>_<segment>.jsonl. They are in the folders of days: that of the thread, which its id gives
 * except for the time zone, and that of the file that asks.
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
      (findAllowed(() => listFolder(disk, folder)) ?? []).map(({ name, kind }) => ({ folder, name, kind })),
    )
    .filter(({ name, kind }) => kind === "file" && isOf(name))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ folder, name }) => join(folder, name))
    .filter((path) => path !== file);
}
