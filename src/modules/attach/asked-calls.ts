/** Calls that the holder of a session runs for this process: in order, and within the number that it reads at once. */

import { Failure } from "../../core/failure.ts";
import { findKnownValueEnd, findValue, toBytes } from "../../core/json/json.ts";
import type { Call, Outcome } from "../../server/connection/call.ts";
import { DescribedError } from "../../server/connection/dialect.ts";
import type { PassedCall } from "../../server/dispatch/gate.ts";

/** Most calls sent at a time. A holder stops reading at 1,000, and then receives nothing else either. */
const MAX_SENT = 500;

/** A call that the holder has not answered. */
interface UnansweredCall extends PassedCall {
  readonly key: string;
  readonly params: readonly (string | Uint8Array)[];
  /** True if a holder that is gone received it: that holder may have run it. */
  isRepeated: boolean;
}

export class AskedCalls {
  private readonly calls = new Map<number, UnansweredCall>();
  private numbers = 0;
  private lastSent = 0;
  /** Number of calls that were sent and not answered. */
  private underWay = 0;

  get size(): number {
    return this.calls.size;
  }

  /** Every call without an answer, in their order. */
  get all(): readonly UnansweredCall[] {
    return [...this.calls.values()];
  }

  get(number: unknown): UnansweredCall | undefined {
    return this.calls.get(number as number);
  }

  add(call: UnansweredCall): void {
    this.calls.set(++this.numbers, call);
  }

  /** Notes that a host is asked about a call. */
  noteConsent(number: number): void {
    const asked = this.calls.get(number);
    if (asked) this.calls.set(number, { ...asked, call: { ...asked.call, needsConsent: true } });
  }

  /** Returns the next call that may be sent now, with its number; it counts as sent. */
  next(): [number, UnansweredCall] | undefined {
    while (this.lastSent < this.numbers && this.underWay < MAX_SENT) {
      const call = this.calls.get(++this.lastSent);
      if (!call) continue;
      this.underWay++;
      return [this.lastSent, call];
    }
    return undefined;
  }

  /** Removes and returns an answered call; undefined if no call has that number. */
  takeAnswered(number: number): UnansweredCall | undefined {
    const call = this.calls.get(number);
    if (!this.calls.delete(number)) return undefined;
    if (number <= this.lastSent) this.underWay--;
    return call;
  }

  /** Cancels the matching calls that were not sent. Calls back with the numbers of the matching ones that were. */
  cancel(isMeant: (call: Call) => boolean, isSent: (number: number) => void): void {
    for (const [number, asked] of [...this.calls]) {
      if (!isMeant(asked.call)) continue;
      if (number <= this.lastSent) isSent(number);
      else this.takeAnswered(number)?.settle({ error: new Failure("cancelled") });
    }
  }

  /** Notes that the holder is gone: calls sent to it may have run, and are sent again. */
  startAgain(): void {
    for (const [number, call] of this.calls) call.isRepeated ||= number <= this.lastSent;
    const [first = this.numbers + 1] = this.calls.keys();
    this.lastSent = first - 1;
    this.underWay = 0;
  }

  /** Removes and returns all calls. */
  takeAll(): readonly UnansweredCall[] {
    const { all } = this;
    this.calls.clear();
    this.lastSent = this.numbers;
    this.underWay = 0;
    return all;
  }
}

/** Failures of a repeated call before anything showed whether the former holder had done it. */
const UNTRIED: ReadonlySet<unknown> = new Set(["storage_failed", "session_locked"]);

/**
 * Ends a call. What a former holder may have done is not reported as undone, and a leaf that it may have moved by the same
 * call is not another client's change.
 */
export function settleCall({ call, settle, isRepeated }: UnansweredCall, outcome: Outcome): void {
  const { effect, runsAlone } = call.command;
  if (!isRepeated || effect === "read" || !("error" in outcome)) return settle(outcome);
  const { error } = outcome;
  const { name, details } = error instanceof DescribedError ? describe(error) : (error as Partial<Failure>);
  const unknown = (what: string, more: Record<string, unknown> = {}): void =>
    settle({
      error: new Failure(
        "outcome_unknown",
        `The process that held this session ended before it answered. ${what}`,
        more,
        {
          cause: error,
          retryable: true,
        },
      ),
    });
  if (UNTRIED.has(name)) {
    const why = error instanceof Failure ? ` ${error.text.what}` : "";
    return unknown(
      `It may have done this.${why} Read the state and decide again, or send the same request with its idempotencyKey again.`,
    );
  }
  if (name !== "content_modified" || !runsAlone) return settle(outcome);
  const { leafId = null } = details as { leafId?: string | null };
  unknown(
    "The leaf is not the expected one, which may be the work of this very request. Read the state and decide again.",
    { leafId },
  );
}

function describe({ description: { name, data } }: DescribedError): { name: string; details: object } {
  return { name, details: data };
}

/** Runs a call in this process, which holds the session now. */
export async function runLocally(asked: UnansweredCall): Promise<void> {
  const { call, key, runHere } = asked;
  const keyed = { ...call, params: { ...(call.params as object), idempotencyKey: key } };
  let outcome: Outcome;
  try {
    outcome = { result: await runHere(keyed) };
  } catch (error) {
    outcome = { error };
  }
  settleCall(asked, outcome);
}

/** Returns the JSON text of a call's params in pieces, with `key` added if it is given. */
export function serializeParams(call: Call, key: string | undefined): (string | Uint8Array)[] {
  const { bytes, range, toParams } = call.messageText();
  const found = findValue(bytes, range, [...toParams], findKnownValueEnd);
  // The message may be part of an input buffer that is reused.
  const text = found ? Buffer.from(bytes.subarray(found.start, found.end)) : toBytes("{}");
  if (key === undefined) return [text];
  return [`{"idempotencyKey":${JSON.stringify(key)}${hasNoMember(text) ? "" : ","}`, text.subarray(1)];
}

/** Returns whether the JSON text of an object has no members. */
function hasNoMember(text: Uint8Array): boolean {
  let at = 1;
  while (text[at] <= 0x20) at++;
  return text[at] === 0x7d;
}
