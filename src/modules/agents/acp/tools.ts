/** Tool calls in the form of the Agent Client Protocol: kind, title, locations, changes, plans. */

import { isAbsolute, resolve } from "node:path";
import { findEdits, findTextMember, type LooseMembers, PATHS, toMembers } from "../../../core/format/loose.ts";
import { findMainArgument, toPreview, toStored } from "../../../core/format/message.ts";

type ToolKind =
  | "read"
  | "edit"
  | "delete"
  | "move"
  | "search"
  | "execute"
  | "think"
  | "fetch"
  | "switch_mode"
  | "other";

/** Names of tools by kind, in lower case and without `_` and `-`: of Pi, and of the agents whose sessions are read. */
const KINDS: readonly (readonly [ToolKind, string])[] = [
  ["read", "read readfile ls list listdir listdirectory listfiles viewimage view notebookread openfile"],
  ["edit", "edit write multiedit applypatch patch writefile editfile createfile strreplace notebookedit replace"],
  ["delete", "delete deletefile remove rm"],
  ["move", "move movefile rename mv"],
  ["search", "grep find glob search searchfiles codesearch websearch ripgrep toolsearch"],
  [
    "execute",
    "bash shell exec execcommand run runcommand terminal localshell executecommand python bashoutput killshell",
  ],
  ["think", "think task agent todowrite updateplan todo todoread"],
  ["fetch", "fetch webfetch browse openurl"],
  ["switch_mode", "exitplanmode enterplanmode switchmode"],
];
const kinds = new Map(KINDS.flatMap(([kind, names]) => names.split(" ").map((name) => [name, kind] as const)));

export function isToolKind(value: unknown): boolean {
  return value === "other" || KINDS.some(([kind]) => kind === value);
}

export function getToolKind(name: string): ToolKind {
  return kinds.get(name.replace(/[_-]/g, "").toLowerCase()) ?? "other";
}

/** Returns the title of a call, one line. */
export function getToolTitle(name: string, args: unknown): string {
  const argument = toPreview(findMainArgument(args), 200);
  if (argument !== "" && getToolKind(name) === "execute") return argument;
  return `${name || "tool"}${argument === "" ? "" : ` ${argument}`}`;
}

/** Returns the absolute path of a call; undefined when the session has no directory. */
function resolvePath(path: string, cwd: string): string | undefined {
  if (isAbsolute(path) || /^[A-Za-z]:[\\/]|^\\\\/.test(path)) return path;
  // Only the agent knows its home folder `~`.
  if (path === "" || path.startsWith("~") || !isAbsolute(cwd)) return undefined;
  return resolve(cwd, path);
}

function getFilePath(args: LooseMembers, cwd: string): string | undefined {
  const path = findTextMember(args, ...PATHS, "notebook_path");
  return path === undefined ? undefined : resolvePath(path, cwd);
}

/** Returns the locations of a call, for clients that follow the agent. */
export function getLocations(args: unknown, cwd: string): readonly { path: string; line?: number }[] {
  const given = toMembers(args);
  const path = getFilePath(given, cwd);
  if (path === undefined) return [];
  return [makeLocation(path, given.offset ?? given.line)];
}

export function makeLocation(path: string, line: unknown): { path: string; line?: number } {
  return typeof line === "number" && Number.isInteger(line) && line > 0 && line < 2 ** 32 ? { path, line } : { path };
}

/** Returns the requested changes of a call, as its contents. */
export function getDiffs(name: string, args: unknown, cwd: string): readonly object[] {
  if (getToolKind(name) !== "edit") return [];
  const given = toMembers(args);
  const path = getFilePath(given, cwd);
  if (path === undefined) return [];
  const whole = findTextMember(given, "content");
  const edits = findEdits(given);
  const changes =
    edits.length > 0
      ? edits.map(({ before, after }) => ({ oldText: before, newText: after }))
      : whole === undefined
        ? []
        : [{ newText: whole }];
  return changes.map((change) => ({ type: "diff", path, ...change }));
}

const STATES: Readonly<Record<string, string>> = {
  pending: "pending",
  in_progress: "in_progress",
  completed: "completed",
};

/** Returns the plan in a call, as the entries of an update; undefined for other calls. */
export function parsePlan(name: string, args: unknown): readonly object[] | undefined {
  const given = toMembers(args);
  const listed = /^(?:todo_?write|update_?plan)$/i.test(name) ? (given.todos ?? given.plan) : undefined;
  return Array.isArray(listed) ? toPlanEntries(listed) : undefined;
}

export function toPlanEntries(listed: readonly unknown[]): readonly object[] {
  return listed.map(toMembers).map((item) => {
    const priority = toStored(item.priority);
    return {
      content: findTextMember(item, "content", "step", "text") ?? "",
      priority: /^(?:high|medium|low)$/.test(priority) ? priority : "medium",
      status: STATES[toStored(item.status)] ?? "pending",
    };
  });
}
