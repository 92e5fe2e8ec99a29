/** The contract of formats for export: entries in, records of a file that another agent resumes out. */

import type { JsonObject } from "../../../core/foreign/messages.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { Session } from "../../../core/session/session.ts";
import type { RecordVerdict } from "../read/translator.ts";
import type { Route } from "./route.ts";

/** An entry on its way out. */
export interface OutgoingEntry {
  readonly position: number;
  readonly id: string;
  /** ISO 8601. */
  readonly at: string;
  /** All of it, as it is stored. */
  readonly entry: JsonObject;
  readonly line: Uint8Array;
  /** Its message as the model sees it, if it has one. */
  readonly message: JsonObject | undefined;
}

/** A call of a tool, with the id that it has in the file that is written. */
export interface OutgoingCall {
  readonly id: string;
  /** As the session has it. */
  readonly ownId: string;
  readonly name: string;
  readonly arguments: unknown;
}

/** The answer to a call: an entry, or none if the session has none. */
export interface OutgoingResult {
  readonly call: OutgoingCall;
  /** The position of the message that called. */
  readonly speaker: number;
  /** Missing for a result that was lost. */
  readonly result?: OutgoingEntry;
  /** The entry after a lost result, and the number of the result among those there. */
  readonly lostAt?: { readonly id: string; readonly at: string; readonly number: number };
}

/** An entry as records, and its fidelity. */
export interface Outgoing extends Pick<RecordVerdict, "fidelity" | "warning"> {
  readonly records: readonly JsonObject[];
}

export interface AgentFormatOptions {
  readonly session: Session;
  readonly route: Route;
  /** The id of the session in the file that is written. */
  readonly sessionId: string;
  readonly sha256: Env["sha256"];
}

/** Writes one session for one agent. */
export interface AgentFormat {
  readonly agent: string;
  /** The place in the file's tree that the next record continues; formats that are lines have none. */
  cursor: string | null;
  /** Returns an id for a call that the agent's provider accepts; undefined if it does not accept the session's own. */
  callId(ownId: string): string | undefined;
  /** Returns an id for a call whose own cannot be used, from some text that only this call has. */
  newCallId(unique: string): string;
  begin(): readonly JsonObject[];
  /** Returns an entry that is no result; `calls`: of an answer. */
  entry(entry: OutgoingEntry, calls: readonly OutgoingCall[]): Outgoing;
  result(result: OutgoingResult): Outgoing;
  /** Returns the records of a compaction with those of the messages that it carries, which `carry` makes. */
  carrying(compaction: readonly JsonObject[], carry: () => readonly JsonObject[]): readonly JsonObject[];
  end(): readonly JsonObject[];
  /** Returns sentences about the whole. */
  warnings(): readonly string[];
}

export class Losses {
  private readonly sentences: string[] = [];
  private isLess = false;

  /** Notes a missing or changed part, with a sentence if a person should know. */
  note(sentence?: string): void {
    this.isLess = true;
    if (sentence !== undefined && !this.sentences.includes(sentence)) this.sentences.push(sentence);
  }

  outgoing(records: readonly JsonObject[]): Outgoing {
    const warning = this.sentences.length === 0 ? {} : { warning: this.sentences.join(" ") };
    const fidelity = records.length === 0 ? "dropped" : this.isLess ? "derived" : "preserved";
    return { records, fidelity, ...warning };
  }
}

/** The text in place of a blank summary: providers refuse a text without text. */
const NO_SUMMARY = "The conversation before this was compacted; there is no summary of it.";

/** Returns the summary of a compaction as the model may see it. */
export function toSummaryText(summary: string, losses: Losses): string {
  if (summary.trim() !== "") return summary;
  losses.note("A compaction has no summary, and a sentence says so in its place.");
  return NO_SUMMARY;
}

export function dropEntry(warning?: string): Outgoing {
  return { records: [], fidelity: "dropped", ...(warning === undefined ? {} : { warning }) };
}

export function deriveUuid(sha256: Env["sha256"], ...texts: readonly string[]): string {
  const h = sha256(new TextEncoder().encode(JSON.stringify(texts)));
  const variant = "89ab"[Number.parseInt(h[16], 16) & 3];
  return `${h.slice(0, 8)}-${h.slice(8, 12)}-8${h.slice(13, 16)}-${variant}${h.slice(17, 20)}-${h.slice(20, 32)}`;
}
