/** The server, for an agent: runs its work in the order of the calls of its session. */

import type { Session } from "../../../core/session/session.ts";
import type { Workspace } from "../../../core/session/workspace.ts";
import { type Command, defineCommand } from "../../../handlers/shared/command.ts";
import type { Call, Outcome } from "../../../server/connection/call.ts";
import { makeEvent } from "../../../server/connection/host.ts";
import type { Dispatcher } from "../../../server/dispatch/dispatcher.ts";
import type { AgentLaunch } from "./process.ts";

/** Options to start an agent, and its time limits. */
export interface AgentOptions extends AgentLaunch {
  /** Milliseconds that the agent has to answer a question of ours, and to read its pending input. */
  readonly within: number;
  /** Reports an error of this server to a person. */
  printError(sentence: string): void;
  /** Returns the agent's working directory for a session. */
  cwdFor(session: Session | null): string;
}

type AgentDispatcher = Pick<Dispatcher, "submit" | "commitPending" | "passOn" | "readForeign">;

/** The parts of the server that agents use. */
export interface ServerHandles {
  readonly workspace: Workspace;
  readonly dispatcher: AgentDispatcher;
  /** Resumes reading from the host. */
  resumeInput(): void;
}

/** The server, for a Pi agent behind any kind of host. */
export class AgentServer {
  private readonly handles: ServerHandles;
  private readonly options: AgentOptions;

  constructor(handles: ServerHandles, options: AgentOptions) {
    this.handles = handles;
    this.options = options;
  }

  cwdFor(session: Session | null): string {
    return this.options.cwdFor(session);
  }

  /** Resumes reading from the host, after the agent's input was full. */
  resumeInput(): void {
    this.handles.resumeInput();
  }

  /** Notifies clients of entries that were written for the agent. */
  notifyWritten(session: Session, entryIds: readonly string[]): void {
    notifyWrittenEntries(this.handles.dispatcher, session, entryIds);
  }

  /** Reads entries that the agent has written to a session. */
  readForeign(session: Session): void {
    this.handles.dispatcher.readForeign(session);
  }

  printError(sentence: string): void {
    this.options.printError(sentence);
  }

  now(): number {
    return this.handles.workspace.env.now();
  }

  /** Returns a text that no other program uses. */
  nonce(): string {
    return this.handles.workspace.env.entryId();
  }
}

/** A command in no table, which runs in the order of the others. */
export const AGENT_COMMAND: Command = defineCommand({
  name: "agent",
  summary: "Done by the agent.",
  effect: "control",
  result: () => undefined as never,
  example: { params: {}, result: undefined as never },
  run: () => undefined as never,
});

const noText: Call["messageText"] = () => ({ bytes: Buffer.alloc(0), range: { start: 0, end: 0 }, toParams: [] });

/** Runs work in the order of the calls of a session, by default of the current one, even when the server is ending. */
export function runInOrder(dispatcher: AgentDispatcher, work: () => Promise<void>, sessionId?: string): Promise<void> {
  return new Promise((resolve) => {
    const run = { ...AGENT_COMMAND, run: work as Command["run"] };
    // A server that is ending refuses calls, so that the work runs here.
    const answer = (outcome: Outcome): void => ("error" in outcome ? void work().then(resolve) : resolve());
    const params = sessionId === undefined ? {} : { sessionId };
    dispatcher.submit({ command: run, name: "", params, idText: undefined, messageText: noText, answer });
    dispatcher.commitPending();
  });
}

/** Notifies clients of entries that were written for an agent. */
export function notifyWrittenEntries(dispatcher: AgentDispatcher, session: Session, entryIds: readonly string[]): void {
  dispatcher.passOn(session, [makeEvent(session, "session_append", { entryIds: [...entryIds], origin: "self" })]);
}
