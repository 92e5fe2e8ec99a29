/** Sessions that another agent resumes: the commands for it, and the contract of a session as a file of that agent. */

import type { FidelityReport } from "../ports/fidelity.ts";
import type { Session } from "../session/session.ts";

/** Agents whose files can be written. */
export const RESUMING = ["claude", "codex"] as const;

export type ResumingAgent = (typeof RESUMING)[number];

export interface ResumableSession {
  /** Its id in the file. */
  readonly sessionId: string;
  /** Where the agent looks for the file, which is not created; undefined without a directory. */
  readonly path: string | undefined;
  /** The command of a shell that resumes it, once the file is there. */
  readonly command: string;
  /** Yields its lines, once. */
  lines(): Iterable<string>;
  /** Returns the fidelity of the entries, once all lines were taken. */
  report(): FidelityReport;
}

/**
 * Returns a session as one that an agent resumes at `leaf`: the same bytes for the same entries and leaf. `all`: with
 * every branch, which only Claude Code's files can have.
 */
export type MakeResumable = (
  agent: ResumingAgent,
  session: Session,
  extent: { readonly leaf: number; readonly all: boolean },
) => ResumableSession;

/** The commands by which agents resume a session of theirs, with {id} for their own id of it. */
const COMMANDS: Readonly<Record<string, string>> = {
  claude: "claude --resume {id}",
  codex: "codex resume {id}",
  copilot: "copilot --resume={id}",
  gemini: "gemini --resume {id}",
  goose: "goose session -r --session-id {id}",
  opencode: "opencode --session {id}",
};

/** Returns the command of a shell by which an agent resumes a session in its directory; undefined for other agents. */
export function makeResumeCommand(agent: string, id: string, cwd: string): string | undefined {
  if (!Object.hasOwn(COMMANDS, agent)) return undefined;
  return `${cwd === "" ? "" : `cd ${quoteWord(cwd)} && `}${COMMANDS[agent].replace("{id}", id)}`;
}

/** Returns a word as a shell reads it. */
export function quoteWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
