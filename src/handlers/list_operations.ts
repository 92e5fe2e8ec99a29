import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { toBytes } from "../core/json/json.ts";
import type { LifeCycle } from "../core/ports/lifecycle.ts";
import { OPERATION_KINDS, type Operation } from "../core/ports/operations.ts";
import { formatGroup, getPathAfter, History } from "../core/session/history.ts";
import type { Workspace } from "../core/session/workspace.ts";
import { defineCommand } from "./shared/command.ts";
import { findPageEnd } from "./shared/page.ts";
import { readMoment } from "./shared/params.ts";
import { anySessionPath, cursor, exampleId, limit, nextCursor } from "./shared/shapes.ts";
import { IS_BACK, makeGoneTest, makeUndoFilter } from "./shared/undo-redo.ts";

const row = z.object({
  operationId: z.string(),
  at: z.string().describe("ISO 8601"),
  kind: z.enum(OPERATION_KINDS),
  sessionId: z.string().describe("empty for leftovers of several sessions"),
  sessionPath: z.string().describe("where the session was before"),
  name: z.string().nullable().describe("of the session, then"),
  text: z.string().describe("one sentence: the event"),
  canUndo: z.boolean().describe("whether undo takes it back, unless its result was changed since"),
  undoneBy: z.string().optional().describe("the operation that took it back"),
  reason: z.string().optional().describe("why undo does not take it back"),
  group: z.string().optional().describe("the first of the operations that undo takes back together with this one"),
  size: z.number().int().optional().describe("with grouped: the number of operations in this row"),
  undone: z.number().int().optional().describe("with grouped: how many of them were taken back"),
});

export default defineCommand({
  name: "list_operations",
  summary:
    "Lists the changes that a person may regret, the newest first: of all processes, as far back as they are recorded. " +
    "Changes nothing.",
  effect: "server",
  repeatable: true,
  params: {
    sessionPath: anySessionPath.describe("only those of this session, by the path that it has or had"),
    sessionId: z
      .string()
      .optional()
      .describe("only those of the session with this id, or with the only one that begins so"),
    grouped: z
      .boolean()
      .optional()
      .describe("one row for those that undo takes back together, with the id of the first, which stands for all"),
    since: z.string().optional().describe("only those of this time or later, ISO 8601"),
    cursor,
    limit,
  },
  result: () => z.object({ operations: z.array(row), nextCursor }),
  failures: ["cursor_expired", "ambiguous_id", "not_a_session", "path_outside_root", "storage_failed"],
  example: {
    params: { limit: 1 },
    result: {
      operations: [
        {
          operationId: "3f2a9c1077de",
          at: "2026-01-24T16:22:26.831Z",
          kind: "branch",
          sessionId: exampleId,
          sessionPath: "/home/me/sessions/current.jsonl",
          name: null,
          text: "Moved the leaf from b2c3d4e5 to d4e5f6a7.",
          canUndo: true,
        },
      ],
    },
  },
  run(context, { since, limit, cursor, grouped = false, ...wanted }) {
    const { workspace } = context;
    const history = History.of(workspace.stores.operations);
    const from = readMoment("since", since);
    const isMeant = makeUndoFilter(workspace, history, wanted);
    const meant = history.operations
      .filter((operation) => isMeant(operation) && (from === undefined || Date.parse(operation.at) >= from))
      .reverse();
    const found = grouped ? newestOfGroups(history, meant) : meant;
    const start = cursor === undefined ? 0 : found.findIndex(({ id }) => id === cursor) + 1;
    if (cursor !== undefined && start === 0) throw new Failure("cursor_expired", undefined, { cursor });
    const rest = found.slice(start, limit === undefined ? undefined : start + limit);
    const facts = { workspace, history, isGone: makeGoneTest(workspace.stores, history) };
    const rows = rest.map((operation) => (grouped ? groupRow : rowOf)(facts, operation));
    const past = findPageEnd(context, limit, rows.length, 0, (i) => toBytes(JSON.stringify(rows[i])));
    return {
      operations: rows.slice(0, past),
      nextCursor: start + past < found.length ? rest[past - 1]?.id : undefined,
    };
  },
});

/** Returns of each group only the first that is there, which is its newest. */
function newestOfGroups(history: History, operations: readonly Operation[]): Operation[] {
  const newest = new Map<string, Operation>();
  for (const operation of operations) {
    const [{ id }] = history.groupOf(operation);
    if (!newest.has(id)) newest.set(id, operation);
  }
  return [...newest.values()];
}

/** The operations, and what their rows are made of. */
interface RowFacts {
  readonly workspace: Workspace;
  readonly history: History;
  readonly isGone: ReturnType<typeof makeGoneTest>;
}

/** Returns the row of a group; of an operation that is alone, its own. */
function groupRow(facts: RowFacts, newest: Operation): z.input<typeof row> {
  const { history } = facts;
  const { lifeCycle } = facts.workspace.stores;
  const members = history.groupOf(newest).filter(({ sessionPath }) => lifeCycle.isAllowed(sessionPath));
  if (members.length < 2) return rowOf(facts, newest);
  const rows = members.map((operation) => rowOf(facts, operation));
  // It can be taken back as long as one of them can, and counts as undone when all are.
  const shown =
    rows.find(({ canUndo }) => canUndo) ?? rows.find(({ undoneBy }) => undoneBy === undefined) ?? rows[rows.length - 1];
  const [first] = members;
  const root = history.root(first) ?? first;
  const event = formatGroup(root, members.length);
  const text = root === first ? event : `${first.kind === "undo" ? "Took back" : "Did again"}: ${event}`;
  const undone = rows.filter(({ undoneBy }) => undoneBy !== undefined).length;
  return { ...shown, operationId: first.id, at: newest.at, text, size: rows.length, undone };
}

function rowOf({ workspace: { stores }, history, isGone }: RowFacts, operation: Operation): z.input<typeof row> {
  const { id: operationId, at, kind, sessionId, sessionPath, name, text, stage, final, step } = operation;
  const undone = history.undoneBy(operation);
  const [first, second] = history.groupOf(operation);
  const listed = { operationId, at, kind, sessionId, sessionPath, name, text, ...(second ? { group: first.id } : {}) };
  if (undone) return { ...listed, canUndo: false, undoneBy: undone.id, reason: "It was taken back." };
  if (final !== undefined) return { ...listed, canUndo: false, reason: final };
  const latest = history.latest(operation);
  if (stores.lifeCycle.isLost(latest))
    return { ...listed, canUndo: false, reason: "The trash does not have it any more." };
  if (isGone(operation))
    return { ...listed, canUndo: false, reason: "Its session was deleted since, and the trash does not have it." };
  if (isBackUnrecorded(stores.lifeCycle, history, latest)) return { ...listed, canUndo: false, reason: IS_BACK };
  if (latest !== operation && kind !== "undo" && kind !== "redo") return { ...listed, canUndo: true };
  if (latest !== operation) return { ...listed, canUndo: false, reason: "A later operation goes on from it." };
  if (step === undefined) return { ...listed, canUndo: false, reason: "It has no way back." };
  if (stage === "begun" && stores.lifeCycle.stepOf(operation) === false)
    return { ...listed, canUndo: false, reason: "It was begun, and did not happen: the process ended before." };
  return { ...listed, canUndo: true };
}

/** Returns whether a session is as before an operation, though by the record it is where the operation put it. */
function isBackUnrecorded(lifeCycle: LifeCycle, history: History, operation: Operation): boolean {
  const { step } = operation;
  // Only a failure shows whether a repair is back: its session is at one place all the time.
  if (step === undefined || step.do === "swap" || !lifeCycle.isBack(operation)) return false;
  return history.pathNow(operation) === (step.do === "trash" ? undefined : getPathAfter(step));
}
