/** Recording: how the turn of any agent becomes entries of a session. */

/** Records turns of an agent. Each entry is written once, by the process that is the session's writer. */
export interface Recorder<Beginning, Update, Reason> {
  /** Begins a turn. */
  begin(beginning: Beginning): unknown;
  /** Takes an update of the agent. */
  update(update: Update): unknown;
  /** Ends the turn: the rest of the updates becomes entries, and the reason why they are the last ones. */
  end(reason: Reason): unknown;
}
