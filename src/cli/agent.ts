/** Opens a session in the user's agent: `resume` does, and `browse` for the session that is picked. */

import { isAbsolute, resolve } from "node:path";
import { isErrno } from "../core/errno.ts";
import { makeResumeCommand } from "../core/export/resumable.ts";
import { Failure } from "../core/failure.ts";
import { SESSION_ID } from "../core/format/entry.ts";
import { getInfo } from "../storage/fs/files.ts";
import { findProgram, isProgram } from "../storage/fs/programs.ts";
import { UsageError } from "./options.ts";
import { show } from "./terminal/text.ts";
import { openNamedSession, type ResultOf, type VerbContext } from "./verb.ts";
import { splitShellWords } from "./words.ts";

/** The agent that is started by default. */
const USUAL = "pi --session {path}";
/** The variable that names another one. */
const VARIABLE = "PI_SESSION_SERVER_RESUME";

type SessionState = ResultOf<"get_state">;

/** The session that was opened in an agent, and how. */
export interface Resumed {
  readonly sessionId: string;
  readonly sessionPath: string | null;
  readonly cwd: string;
  /** The words of the command. */
  readonly command: readonly string[];
  /** The exit status of the agent; null when it was not started. */
  readonly status: number | null;
}

interface ResumeOptions {
  /** The agent's command, with {path}, {id} or {cwd} in it. */
  readonly command?: string;
  /** Finds out everything and starts nothing. */
  readonly dryRun?: boolean;
}

/**
 * Starts the agent with a session, in its directory and on this terminal, and waits until it ends. Our server ends
 * first, so that its lock is free. Throws UsageError, CommandFailed and Failure.
 */
export async function resumeSession(
  asking: VerbContext,
  session: string,
  options: ResumeOptions = {},
): Promise<Resumed> {
  const template = options.command ?? (asking.variables[VARIABLE] || USUAL);
  const words = splitSessionCommand(template);
  await openNamedSession(asking, session);
  const state = await asking.ask("get_state");
  const theirs = findTheirs(state);
  if (theirs !== undefined) {
    asking.say(`${THEIRS} The command goes on with it there; ${describeCopy(state)}`);
    return theirs;
  }
  requireFree(state);
  requireReadable(state, template);
  requireFolder(asking, state);
  const command = filled(words, state);
  const program = options.dryRun ? undefined : programOf(asking, command[0]);
  // The lock is free before the agent looks for it, and a leaf that only we know is in the file.
  await asking.leave();
  const { sessionId, sessionFile: sessionPath, cwd } = state;
  const resumed = { sessionId, sessionPath, cwd, command };
  if (program === undefined) return { ...resumed, status: null };
  try {
    const status = await asking.start({ program, args: command.slice(1), cwd, variables: asking.variables });
    return { ...resumed, status };
  } catch (error) {
    if (!isErrno(error)) throw error;
    throw new Failure("unsupported_command", `${program} cannot be started: ${error.code}. ${ANOTHER}`);
  }
}

const ANOTHER = `Name your agent with --agent-command '<command> {path}', or in ${VARIABLE}.`;

// --- the session -----------------------------------------------------------------------------------------------------

function requireFree({ lockedBy }: SessionState): void {
  if (lockedBy === undefined) return;
  const sentence = `The process ${lockedBy.pid} (${lockedBy.client}) has the session open, since ${lockedBy.since}. End it there first, or fork it.`;
  throw new Failure("session_locked", sentence, { lockedBy });
}

/** Ids by which Claude Code and Codex know no session of a subagent. */
const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i;

/** Returns how another agent goes on with its own session, which is not started; undefined for none, and for ours. */
function findTheirs({ store, importedFrom, sessionId, sessionFile, cwd }: SessionState): Resumed | undefined {
  const { agent = "", id = "" } = importedFrom ?? {};
  const isKnown = agent === "goose" || agent === "opencode" ? /^\w[\w.-]*$/.test(id) : UUID.test(id);
  const command = store === "foreign" && isKnown ? makeResumeCommand(agent, id, "") : undefined;
  if (command === undefined) return undefined;
  return { sessionId, sessionPath: sessionFile, cwd, command: splitShellWords(command), status: null };
}

const THEIRS = "The session is another agent's own file, which this program only reads.";

function describeCopy({ sessionId }: SessionState): string {
  return `fork ${sessionId.slice(0, 8)} copies it into a session of yours.`;
}

function requireReadable(state: SessionState, template: string): void {
  const { sessionFile, sessionId, store } = state;
  if (/\.migrated$/.test(sessionFile ?? "")) {
    const sentence =
      "This is the kept file of a session that was migrated; anything an agent writes here would be lost from view.";
    throw new Failure("read_only", `${sentence} Name the session by its id.`);
  }
  if (store === "foreign") throw new Failure("read_only", `${THEIRS} ${describeCopy(state)}`);
  if (store !== "v2" || template !== USUAL) return;
  const sentence = `Pi reads session files only, and ${sessionId} is in a container. rollback ${sessionId} makes it a file again. ${ANOTHER}`;
  throw new Failure("unsupported_command", sentence);
}

function requireFolder({ disk }: VerbContext, { cwd, sessionId }: SessionState): void {
  const isUsable = isAbsolute(cwd) && !cwd.includes("\0");
  if (isUsable && getInfo(disk, cwd)?.kind === "folder") return;
  const what = cwd === "" ? "The session names no directory" : `The session's directory ${cwd} is not there any more`;
  const sentence = `${what}. relocate ${sessionId} <dir> gives the session a directory.`;
  throw new Failure("storage_failed", sentence, { errno: "ENOENT" }, { retryable: false });
}

// --- the command -----------------------------------------------------------------------------------------------------

/** Returns the words of a command that names the session. Throws UsageError. */
export function splitSessionCommand(command: string): string[] {
  const words = splitShellWords(command);
  requirePlaces(words, command);
  return words;
}

const PLACE = /\{([A-Za-z]+)\}/g;
const PLACES = ["path", "id", "cwd"];

/** Throws UsageError unless the words name the session, and nothing that is not known. */
function requirePlaces(words: readonly string[], command: string): void {
  const named = words.flatMap((word) => Array.from(word.matchAll(PLACE), ([, name]) => name));
  const unknown = named.find((name) => !PLACES.includes(name));
  if (unknown !== undefined)
    throw new UsageError(`{${unknown}} stands for nothing in the agent's command. {path}, {id} and {cwd} do.`);
  if (named.includes("path") || named.includes("id")) return;
  throw new UsageError(
    show`The agent's command ${command} does not say which session to open. Put {path} or {id} where that goes.`,
  );
}

/** Returns the words with the session in its places; each stays one word. */
function filled(words: readonly string[], { sessionFile, sessionId, cwd }: SessionState): string[] {
  const values: Readonly<Record<string, string>> = { path: sessionFile ?? "", id: sessionId, cwd };
  return words.map((word) =>
    word.replace(PLACE, (_, name) => {
      // An id of another writer's may look like an option.
      if (name === "id" && !SESSION_ID.test(sessionId))
        throw new Failure("invalid_id", "This session id cannot be used on a command line. Use {path}.");
      return values[name];
    }),
  );
}

/** Returns the path of the program, as it is found from here and not from the session's directory. */
function programOf({ cwd, disk, variables }: VerbContext, name: string): string {
  const found = /[/\\]/.test(name) ? resolve(cwd, name) : findProgram(disk, variables, name);
  if (found !== undefined && isProgram(disk, found)) return found;
  const where = found === undefined ? "in the folders of PATH" : "that can be started";
  throw new Failure("unsupported_command", `There is no program ${name} ${where}. ${ANOTHER}`);
}
