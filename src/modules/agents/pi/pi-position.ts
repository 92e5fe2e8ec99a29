/** The position of an agent that speaks Pi's dialect: its session, and whether it has read all of it. */

import { Failure } from "../../../core/failure.ts";
import type { Log } from "../../../core/ports/store.ts";
import type { Session } from "../../../core/session/session.ts";
import { becomeWriter } from "../../../core/session/writer.ts";

/** Has the agent open a session file. Rejects with agent_failed. */
type OpenSessionFile = (sessionPath: string) => Promise<void>;

export class AgentPosition {
  /** The agent's session; undefined when it has none of ours open. */
  private current: Session | undefined;
  private isCurrent = false;
  /** The log whose file the agent has read, and its `changeCount` then: the times that entries of others came. */
  private read: { readonly log: Log; readonly brought: number | undefined } | undefined;

  get session(): Session | undefined {
    return this.current;
  }

  /** Returns whether the agent is at a session and has read all of it. */
  isInStepWith(session: Session | null): boolean {
    return session !== null && this.isCurrent && this.current === session;
  }

  /**
   * Confirms, before more work of the agent, that its session is still ours to write. If other programs wrote to it,
   * the agent must open it again. Rejects with the reason why it may not write.
   */
  async confirm(session: Session): Promise<void> {
    const { log } = session;
    // While the agent was idle, the session may have got entries of others, or another file.
    if (this.read?.log !== log || this.read.brought !== log.replica?.status.changeCount) return this.outdate(session);
    const ready = log.replica?.ready();
    if (!ready) return;
    // The entries so far are the agent's own.
    session.externalChanges.checkForChanges();
    const { count } = log.nodes;
    await ready;
    session.externalChanges.checkForChanges();
    if (session.log !== log || log.nodes.count !== count) this.outdate(session);
    else requireOurs(session);
  }

  /** Called when another program writes to the session, or moves its leaf: the agent must open it again. */
  outdate(session: Session): void {
    if (session === this.current) this.isCurrent = false;
  }

  /** Called when the agent is gone. Returns its session, whose leaf still follows the file. */
  leave(): Session | undefined {
    const { current } = this;
    this.current = undefined;
    this.isCurrent = false;
    return current;
  }

  /** Has the agent open a session whose file exists, ends at our leaf, and is ours to write. Rejects otherwise. */
  async moveTo(session: Session, open: OpenSessionFile): Promise<void> {
    requireUsable(session);
    const before = this.current === session ? undefined : this.leave();
    if (before) before.externalChanges.followsFile = false;
    // The header must be there before the agent gets the path, so that no other session takes the path.
    if (!session.log.persisted) session.putIntoStore();
    await becomeWriter(session);
    requireOurs(session);
    await session.commit();
    // Pi continues at the end of the file.
    await session.leave();
    const { log } = session;
    this.current = session;
    this.read = { log, brought: log.replica?.status.changeCount };
    session.externalChanges.followsFile = true;
    try {
      await open(session.file as string);
      this.isCurrent = true;
    } catch (error) {
      // The agent's session is now unknown.
      this.isCurrent = false;
      throw error;
    }
  }
}

function requireUsable({ log, holder, file }: Session): void {
  if (holder) {
    const sentence = `The server of ${holder.client} (process ${holder.pid}) holds this session, and its agent is the one that may write here. Prompt there, or clone the session and prompt in the copy.`;
    throw new Failure("session_locked", sentence);
  }
  if (log.foreign) throw makeReadOnlyFailure(`This session is ${log.foreign.title}'s own file, which is only read.`);
  if (log.readOnly) throw makeReadOnlyFailure("This session can only be read.");
  if (log.store !== "jsonl" || file === null)
    throw new Failure(
      "unsupported_command",
      "The agent reads session files, and this session is in a container. rollback_migration makes it a file again.",
    );
}

/** Throws the reason why an agent of ours may not write to a session. */
function requireOurs(session: Session): void {
  const { holder } = session.log.lock;
  if (holder !== null && holder.host === undefined) throw makeLockedFailure(session);
  // This reports a lock of another machine, or a change of the session in the fleet.
  session.log.lock.acquire();
}

function makeReadOnlyFailure(why: string): Failure {
  return new Failure("read_only", `${why} clone makes one that the agent can continue.`);
}

function makeLockedFailure({ log }: Session): Failure {
  const { client, pid } = log.lock.holder ?? { client: "another program", pid: 0 };
  const sentence = `${client} (process ${pid}) has the lock of this session; the agent cannot write to it. Prompt there, or clone the session and prompt in the copy.`;
  return new Failure("session_locked", sentence);
}
