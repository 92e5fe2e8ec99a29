/** Joins an agent to the server: its work runs in the order of the calls of its session. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { type Command, command } from "../../handlers/shared/command.ts";
import type { Call, Outcome } from "../connection/call.ts";
import { eventOf } from "../connection/host.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { AgentLaunch } from "./process.ts";

/** How an agent is started, and how long it may take. */
export interface AgentMeans extends AgentLaunch {
  /** Milliseconds that it has to answer a question of ours, and to read what waits for it. */
  readonly within: number;
  /** Tells a person what went wrong here. */
  printError(sentence: string): void;
  /** Returns the directory in which an agent works for a session. */
  cwdFor(session: Session | null): string;
}

type Dispatching = Pick<Dispatcher, "submit" | "commitPending" | "passOn">;

/** The server, as agents are joined to it. */
export interface ServerEnds {
  readonly workspace: Workspace;
  readonly dispatcher: Dispatching;
  /** Goes on reading. */
  goOn(): void;
}

/** The server, as an agent finds it whoever its host is. */
export class JoinedServer {
  private readonly ends: ServerEnds;
  private readonly means: AgentMeans;

  constructor(ends: ServerEnds, means: AgentMeans) {
    this.ends = ends;
    this.means = means;
  }

  /** Returns the directory in which an agent is started for a session. */
  cwdFor(session: Session | null): string {
    return this.means.cwdFor(session);
  }

  /** Goes on reading, after the agent took nothing more. */
  goOn(): void {
    this.ends.goOn();
  }

  /** Notes entries that were written for the agent. */
  wrote(session: Session, entryIds: readonly string[]): void {
    tellOfWritten(this.ends.dispatcher, session, entryIds);
  }

  printError(sentence: string): void {
    this.means.printError(sentence);
  }

  now(): number {
    return this.ends.workspace.env.now();
  }

  /** Returns words that no other program uses. */
  nonce(): string {
    return this.ends.workspace.env.entryId();
  }
}

/** A command of no table, which runs in the order of the others. */
export const NO_COMMAND: Command = command({
  name: "agent",
  summary: "Done by the agent.",
  effect: "control",
  result: () => undefined as never,
  example: { params: {}, result: undefined as never },
  run: () => undefined as never,
});

const noText: Call["messageText"] = () => ({ bytes: Buffer.alloc(0), range: { start: 0, end: 0 }, toParams: [] });

/** Runs work in the order of the calls of a session, or of the current one. It runs even when the server is ending. */
export function runInOrder(dispatcher: Dispatching, work: () => Promise<void>, sessionId?: string): Promise<void> {
  return new Promise((resolve) => {
    const run = { ...NO_COMMAND, run: work as Command["run"] };
    // A server that is ending runs nothing more of its host, but this.
    const answer = (outcome: Outcome): void => ("error" in outcome ? void work().then(resolve) : resolve());
    const params = sessionId === undefined ? {} : { sessionId };
    dispatcher.submit({ command: run, name: "", params, idText: undefined, messageText: noText, answer });
    dispatcher.commitPending();
  });
}

/** Tells of entries that were written for an agent. */
export function tellOfWritten(dispatcher: Dispatching, session: Session, entryIds: readonly string[]): void {
  dispatcher.passOn(session, [eventOf(session, "session_append", { entryIds: [...entryIds], origin: "self" })]);
}
