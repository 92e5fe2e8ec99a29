/** The contract between the dispatcher and an agent that writes to the current session while calls run on it. */

import type { Session } from "../../core/session/session.ts";
import type { RunnableCommand } from "../../handlers/shared/command.ts";

export interface AgentGate {
  /** Returns whether the agent may have written to a session since the last call of this, for a command. */
  mayHaveWritten(session: Session, command: RunnableCommand): boolean;
  /**
   * Returns a promise for a command that must wait for the agent. Rejects if the agent is at work and the command would
   * write during it.
   */
  before(command: RunnableCommand, session: Session): Promise<void> | undefined;
}
