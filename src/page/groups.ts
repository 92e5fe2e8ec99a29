/** Answers with the results of their calls, which come after them on the path. */

import type { PageEntry } from "../core/export/page.ts";
import { type LooseMembers, toMembers } from "../core/format/loose.ts";
import { getToolCalls, type ToolCall } from "../core/format/message.ts";
import { addTo } from "../core/lists.ts";

/** An entry, and for an answer its calls in order, with the entries of those that were answered. */
interface EntryGroup {
  /** The index of the entry in its branch. */
  readonly index: number;
  readonly entry: PageEntry;
  readonly results: Map<ToolCall, PageEntry>;
}

/** Entries that are kept at most until an answer's calls have their results. */
const MOST_WAITING = 200;

interface WaitingAnswer extends EntryGroup {
  /** Calls without a result by id, the last first. */
  readonly open: Map<string, ToolCall[]>;
  readonly after: EntryGroup[];
}

/** Yields entries in order, but for results, which come with their calls; no answer waits past a cut. */
export function* groupEntries(entries: Iterable<PageEntry>, cuts: ReadonlySet<number>): Generator<EntryGroup> {
  let waiting: WaitingAnswer | undefined;
  let index = -1;
  for (const entry of entries) {
    index++;
    const message = entry.body.type === "message" ? toMembers(entry.body.message) : {};
    if (waiting && (cuts.has(index) || endsWaiting(waiting, message))) {
      yield* [waiting, ...waiting.after];
      waiting = undefined;
    }
    if (waiting) {
      if (answers(waiting, message, entry)) {
        if (waiting.open.size > 0) continue;
        yield* [waiting, ...waiting.after];
        waiting = undefined;
      } else waiting.after.push({ index, entry, results: new Map() });
      continue;
    }
    const calls = message.role === "assistant" ? getToolCalls(message.content) : [];
    const group: EntryGroup = { index, entry, results: new Map(calls.map((call) => [call, NO_RESULT])) };
    if (calls.length === 0) yield group;
    else {
      const open = new Map<string, ToolCall[]>();
      for (const call of calls.reverse()) addTo(open, call.id, call);
      waiting = { ...group, open, after: [] };
    }
  }
  if (waiting) yield* [waiting, ...waiting.after];
}

/** Stands for the result of a call that has none. */
const NO_RESULT: PageEntry = { number: -1, anchor: "", body: {}, branchesHere: [] };

function endsWaiting({ after }: WaitingAnswer, { role }: LooseMembers): boolean {
  return role === "user" || role === "assistant" || after.length >= MOST_WAITING;
}

/** Gives a result to the first call without one that it names. Returns whether there is such a call. */
function answers({ open, results }: WaitingAnswer, { role, toolCallId }: LooseMembers, entry: PageEntry): boolean {
  if (role !== "toolResult") return false;
  const calls = typeof toolCallId === "string" ? open.get(toolCallId) : undefined;
  const call = calls?.pop();
  if (!call) return false;
  if (calls?.length === 0) open.delete(call.id);
  results.set(call, entry);
  return true;
}
