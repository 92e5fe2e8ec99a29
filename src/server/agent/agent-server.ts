/** Joins an agent to the server: its work runs in the order of the calls of its session. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { type Command, command } from "../../handlers/shared/command.ts";
import type { Call, Outcome } from "../connection/call.ts";
import { eventOf } from "../connection/host.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { AgentLaunch } from "./process.ts";

/** How an agent is started, and how long it may take. */
export interface AgentOptions extends AgentLaunch {
  /** Milliseconds that it has to answer a question of ours, and to read what waits for it. */
  readonly within: number;
  /** Tells a person what went wrong here. */
  printError(sentence: string): void;
  /** Returns the directory in which an agent works for a session. */
  cwdFor(session: Session | null): string;
}

type AgentDispatcher = Pick<Dispatcher, "submit" | "commitPending" | "passOn">;

/** The server, as agents are joined to it. */
export interface ServerHandles {
  readonly workspace: Workspace;
  readonly dispatcher: AgentDispatcher;
  /** Goes on reading. */
  resumeInput(): void;
}

/** The server, as an agent finds it whoever its host is. */
export class AgentServer {
  private readonly handles: ServerHandles;
  private readonly options: AgentOptions;

  constructor(handles: ServerHandles, options: AgentOptions) {
    this.handles = handles;
    this.options = options;
  }

  /** Returns the directory in which an agent is started for a session. */
  cwdFor(session: Session | null): string {
    return this.options.cwdFor(session);
  }

  /** Goes on reading, after the agent took nothing more. */
  resumeInput(): void {
    this.handles.resumeInput();
  }

  /** Notes entries that were written for the agent. */
  notifyWritten(session: Session, entryIds: readonly string[]): void {
    notifyWrittenEntries(this.handles.dispatcher, session, entryIds);
  }

  printError(sentence: string): void {
    this.options.printError(sentence);
  }

  now(): number {
    return this.handles.workspace.env.now();
  }

  /** Returns words that no other program uses. */
  nonce(): string {
    return this.handles.workspace.env.entryId();
  }
}

/** A command of no table, which runs in the order of the others. */
export const AGENT_COMMAND: Command = command({
  name: "agent",
  summary: "Done by the agent.",
  effect: "control",
  result: () => undefined as never,
  example: { params: {}, result: undefined as never },
  run: () => undefined as never,
});

const noText: Call["messageText"] = () => ({ bytes: Buffer.alloc(0), range: { start: 0, end: 0 }, toParams: [] });

/** Runs work in the order of the calls of a session, or of the current one. It runs even when the server is ending. */
export function runInOrder(dispatcher: AgentDispatcher, work: () => Promise<void>, sessionId?: string): Promise<void> {
  return new Promise((resolve) => {
    const run = { ...AGENT_COMMAND, run: work as Command["run"] };
    // A server that is ending runs nothing more of its host, but this.
    const answer = (outcome: Outcome): void => ("error" in outcome ? void work().then(resolve) : resolve());
    const params = sessionId === undefined ? {} : { sessionId };
    dispatcher.submit({ command: run, name: "", params, idText: undefined, messageText: noText, answer });
    dispatcher.commitPending();
  });
}

/** Tells of entries that were written for an agent. */
export function notifyWrittenEntries(dispatcher: AgentDispatcher, session: Session, entryIds: readonly string[]): void {
  dispatcher.passOn(session, [eventOf(session, "session_append", { entryIds: [...entryIds], origin: "self" })]);
}
