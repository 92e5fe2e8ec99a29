/** The contract of a session as a file that another agent resumes. */

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
