/** The calls of the last answer on a path, as far as they were answered there. */

import type { OutgoingCall } from "./format.ts";

export class OpenCalls {
  /** The position of the answer. */
  readonly speaker: number;
  readonly calls: readonly OutgoingCall[];
  /** Number of calls without a result. */
  left: number;
  private readonly answered: Uint8Array;
  /** Indexes of the calls of each id. */
  private readonly byId: ReadonlyMap<string, readonly number[]>;
  /** For each id, how many of its calls, the first ones, were answered at least. */
  private readonly passed: Map<string, number>;
  /** The index before which all calls were answered. */
  private first = 0;

  constructor(speaker: number, calls: readonly OutgoingCall[], before?: OpenCalls) {
    this.speaker = speaker;
    this.calls = calls;
    this.left = before?.left ?? calls.length;
    this.answered = before ? Uint8Array.from(before.answered) : new Uint8Array(calls.length);
    this.byId = before?.byId ?? indexesById(calls);
    this.passed = new Map(before?.passed);
    this.first = before?.first ?? 0;
  }

  /** Returns a copy for another branch, which may have other results. */
  copy(): OpenCalls {
    return new OpenCalls(this.speaker, this.calls, this);
  }

  isAnswered(call: number): boolean {
    return this.answered[call] === 1;
  }

  /** Returns the index of the call that a result with this id answers, or -1. Without an id, order decides. */
  callOf(ownId: string): number {
    if (ownId !== "") {
      const exact = this.next(ownId);
      return exact >= 0 ? exact : this.next("");
    }
    while (this.isAnswered(this.first)) this.first++;
    return this.first < this.calls.length ? this.first : -1;
  }

  answer(call: number): void {
    this.answered[call] = 1;
    this.left--;
  }

  /** Returns the first call of an id that has no result, or -1. */
  private next(ownId: string): number {
    const calls = this.byId.get(ownId) ?? [];
    let passed = this.passed.get(ownId) ?? 0;
    while (passed < calls.length && this.isAnswered(calls[passed])) passed++;
    this.passed.set(ownId, passed);
    return calls[passed] ?? -1;
  }
}

function indexesById(calls: readonly OutgoingCall[]): Map<string, number[]> {
  const indexes = new Map<string, number[]>();
  for (const [call, { ownId }] of calls.entries()) {
    const own = indexes.get(ownId);
    if (own) own.push(call);
    else indexes.set(ownId, [call]);
  }
  return indexes;
}
