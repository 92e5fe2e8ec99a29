/** One request on its way through the server. */

import { findKnownValueEnd, findMember, getMembers, type Range } from "../../core/json/json.ts";
import type { SharedClient } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { RunnableCommand } from "../../handlers/shared/command.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";

export type Outcome = { readonly result: unknown } | { readonly error: unknown };

/** Leaves after an event. */
export interface ReportedLeaves {
  /** Leaf of the local host. */
  readonly leafId: string | null;
  /** Leaves of all clients by head, with the shared leaf under null; missing if that is the only one. */
  readonly leaves?: ReadonlyMap<string | null, string | null>;
}

/** A request that waits for its answer. */
export interface Question {
  readonly answer: Promise<HookAnswer>;
  /** Ends the wait; the answer rejects with `cancelled`. */
  cancel(): void;
  /**
   * Returns whether a host's answer is awaited: that of the process `peer`, or the local one. Missing if no other
   * process shares the session.
   */
  asks?(peer: Peer | undefined): boolean;
}

/** A host that may be asked before a call acts. */
export interface AskedHost {
  /** Returns whether it wants to be asked. */
  has(name: HookName): boolean;
  /** Asks it. `onId` gets the request's id as JSON text as soon as it is known. */
  ask(name: HookName, payload: Readonly<Record<string, unknown>>, onId: (id: string) => void): Question;
}

/** A process that joined a session of this server; its calls run among the local host's. */
export interface Peer extends AskedHost {
  readonly client: SharedClient;
  /** Notes that a host is asked about a call: after the death of this process, the next holder does not run it unasked. */
  noteAsked(call: Call): void;
  /** Answers a call; `left` has the leaves after it, if it changed anything. */
  reply(call: Call, outcome: Outcome, left: ReportedLeaves | undefined): void;
}

export interface Call {
  readonly command: RunnableCommand;
  /** As the host wrote it: name or alias. */
  readonly name: string;
  readonly params: unknown;
  /** JSON text of the id, echoed as it is; undefined for a notification. */
  readonly idText: string | undefined;
  /** Returns the call's message as JSON text, and the position of the params in it. */
  readonly messageText: () => {
    readonly bytes: Uint8Array;
    readonly range: Range;
    readonly toParams: readonly string[];
  };
  /** The error that ends the call in its turn without a run (invalid params, for example). */
  readonly fault?: unknown;
  /**
   * The open session named by the call, if its command takes any session: null if it is not open, undefined if none is
   * named. The dispatcher resolves it when the call comes, and again before the run.
   */
  readonly target?: Session | null;
  /** The guest of session `target` that made the call; undefined for the local host. */
  readonly peer?: Peer;
  /** Receives the outcome of a call that this server makes for its host, instead of a reply. Throws nothing. */
  readonly answer?: (outcome: Outcome) => void;
  /** The head of that guest at the time of the call; null for the shared leaf. */
  readonly head?: string | null;
  /** True if a former holder of the session died while a host was asked about it: it needs a host's consent. */
  readonly needsConsent?: boolean;
}

/** Returns whether a call is a read by the host during a question. It sees the session before the change. */
export function isNestedRead({ command, params }: Call, questionIds: ReadonlySet<string>): boolean {
  if (questionIds.size === 0) return false;
  const { _meta } = (params ?? {}) as { _meta?: { hook?: string | number } };
  return command.effect === "read" && _meta?.hook !== undefined && questionIds.has(JSON.stringify(_meta.hook));
}

/** Returns the id as JSON text: from the bytes if a number is inexact, or the id is nested too deep. */
export function getIdText(id: unknown, bytes: Uint8Array, range: Range): string {
  if (id === null || typeof id === "string" || Number.isSafeInteger(id)) return JSON.stringify(id);
  const member = findMember(getMembers(bytes, range.start, range.end, findKnownValueEnd) ?? [], "id");
  return member ? Buffer.from(bytes.subarray(member.start, member.end)).toString() : JSON.stringify(id);
}

const BEGINNING =
  /^\s*\{\s*(?:"(?:jsonrpc|method|type)"\s*:\s*"[^"\\]*"\s*,\s*)*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*[,}]/;

/** Returns the id of a message with only its beginning kept, if it can be read. */
export function findIdText(bytes: Buffer): string | undefined {
  const found = BEGINNING.exec(bytes.toString("utf8"));
  try {
    JSON.parse(found?.[1] ?? "");
    return found?.[1];
  } catch {
    // The text goes into our reply unchanged, so it must be JSON.
    return undefined;
  }
}
