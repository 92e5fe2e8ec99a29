/** The parts of the server that agents use: the order of the calls of a session, and reports of new entries. */

import type { Session } from "../../../core/session/session.ts";
import type { RunnableCommand } from "../../../handlers/shared/command.ts";
import type { AgentOptions } from "../../../server/agents-module.ts";
import { makeEvent } from "../../../server/connection/events.ts";
import type { FaceWire } from "../../../server/face.ts";
import type { AgentLaunch } from "./process.ts";

/** Options to start an agent, with the receiver of its stderr. */
export type AgentSetup = AgentOptions & AgentLaunch;

type AgentDispatcher = FaceWire["dispatcher"];

/** Returns whether a call is work of an agent, as {@link runInOrder} runs it. */
export function isAgentWork({ name, effect }: RunnableCommand): boolean {
  return name === "" && effect === "control";
}

/**
 * Runs work in the order of the calls of a session, by default of the current one, even when the server is ending.
 * Settles with the work, which may be before the calls before it have their replies.
 */
export function runInOrder<T>(dispatcher: AgentDispatcher, work: () => Promise<T>, sessionId?: string): Promise<T> {
  return new Promise((resolve, reject) => {
    let hasBegun = false;
    const run = (): Promise<void> => {
      hasBegun = true;
      return work().then(resolve, reject);
    };
    // A server that is ending refuses calls, so that the work runs here.
    dispatcher.runInOrder(sessionId, run).catch(() => (hasBegun ? undefined : run()));
  });
}

/** Notifies clients of entries that were written for an agent, after those that other programs wrote before. */
export function notifyWrittenEntries(dispatcher: AgentDispatcher, session: Session, entryIds: readonly string[]): void {
  dispatcher.reportForeign(session);
  dispatcher.passOn(session, [makeEvent(session, "session_append", { entryIds, origin: "self" })]);
}
