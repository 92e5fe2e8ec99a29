/** Where an agent stands that speaks Pi's dialect: the session that it was told to open, and whether it knows all of that. */

import { Failure } from "../../core/failure.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import { becomeWriter } from "../../core/session/writer.ts";

/** A function that has the agent open a session file. Rejects with agent_failed. */
type OpenSessionFile = (sessionPath: string) => Promise<void>;

export class AgentPosition {
  /** The session at which the agent stands; undefined when it stands at none of ours. */
  private current: Session | undefined;
  private isCurrent = false;
  /** The log of which the agent has read the file, and how often others' entries had been put there by then. */
  private read: { readonly log: Log; readonly brought: number | undefined } | undefined;

  get session(): Session | undefined {
    return this.current;
  }

  /** Whether the agent stands at a session and knows everything that is in it. */
  isInStepWith(session: Session | null): boolean {
    return session !== null && this.isCurrent && this.current === session;
  }

  /**
   * Makes sure, before the agent does more there, that the session in which it is in step is still ours to write. Where others
   * wrote to it meanwhile, the agent must open it again. Rejects with the reason why it may not write.
   */
  async confirm(session: Session): Promise<void> {
    const { log } = session;
    // While it rested, its session may have got what others wrote, or be another file.
    if (this.read?.log !== log || this.read.brought !== log.broughtHere) return this.outdate(session);
    const ready = log.ready?.();
    if (!ready) return;
    // What is there until now, the agent has written.
    session.foreign.checkForChanges();
    const { count } = log.nodes;
    await ready;
    session.foreign.checkForChanges();
    if (session.log !== log || log.nodes.count !== count) this.outdate(session);
    else requireOurs(session);
  }

  /** Notes that somebody else writes to the session, or moves its leaf: the agent must open it again. */
  outdate(session: Session): void {
    if (session === this.current) this.isCurrent = false;
  }

  /** Notes that the agent is gone. Returns the session at which it stood, whose leaf still follows the file. */
  leave(): Session | undefined {
    const { current: at } = this;
    this.current = undefined;
    this.isCurrent = false;
    return at;
  }

  /**
   * Has the agent open a session: its file is there, ends where our leaf is, and is ours to write. Rejects with the
   * reason why that cannot be.
   */
  async moveTo(session: Session, open: OpenSessionFile): Promise<void> {
    requireUsable(session);
    const before = this.current === session ? undefined : this.leave();
    if (before) before.foreign.followsFile = false;
    // Before it is told the path, so that it finds the header there and nobody else's session.
    if (!session.log.persisted) session.putIntoStore();
    await becomeWriter(session);
    session.refreshToWrite();
    requireOurs(session);
    await session.commit();
    // Pi goes on where the file ends.
    await session.leave();
    const { log } = session;
    this.current = session;
    this.read = { log, brought: log.broughtHere };
    session.foreign.followsFile = true;
    try {
      await open(session.file as string);
      this.isCurrent = true;
    } catch (error) {
      // Where it stands now is not known.
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
  const { lockedBy } = session.log;
  if (lockedBy !== null && lockedBy.host === undefined) throw makeLockedFailure(session);
  // Of another machine, or of what the fleet has made of the session, it says why.
  session.log.acquireLock();
}

function makeReadOnlyFailure(why: string): Failure {
  return new Failure("read_only", `${why} clone makes one that the agent can continue.`);
}

function makeLockedFailure({ log }: Session): Failure {
  const { client, pid } = log.lockedBy ?? { client: "another program", pid: 0 };
  const sentence = `${client} (process ${pid}) is writing to this session, so that the agent must not. Prompt there, or clone the session and prompt in the copy.`;
  return new Failure("session_locked", sentence);
}
