/** The contract between the dispatcher and an agent that writes to the current session while calls run on it. */

import type { Session } from "../../core/session/session.ts";
import type { Command } from "../../handlers/shared/command.ts";

export interface AgentGate {
  /** Whether the agent may have written to a session since the last check, for a command. Asking counts as one. */
  mayHaveWritten(session: Session, command: Command): boolean;
  /**
   * Returns what a command on a session waits for before it runs; undefined when it need not wait. Rejects where the
   * agent is at work and the command would write beside it.
   */
  before(command: Command, session: Session): Promise<void> | undefined;
}
