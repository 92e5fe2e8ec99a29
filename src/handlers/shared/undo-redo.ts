/** Undo and redo: which operation is meant, and how it is taken back or brought back, wherever its session is. */

import * as z from "zod";
import { Failure, type FailureName } from "../../core/failure.ts";
import type { Draft } from "../../core/format/entry.ts";
import type { TakingBack } from "../../core/ports/lifecycle.ts";
import { OPERATION_KINDS, type Operation, type SessionChange } from "../../core/ports/operations.ts";
import type { Stores } from "../../core/ports/stores.ts";
import { isUnknownTo, takeBackChange } from "../../core/session/changes.ts";
import { formatGroup, getPathAfter, History, quoteText, toConflictFailure } from "../../core/session/history.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { requireWriter } from "../../core/session/writer.ts";
import { ROOT } from "../../core/tree/nodes.ts";
import { notifyAppended } from "./append.ts";
import { makeOpenHereFailure } from "./closed-sessions.ts";
import type { CommandContext } from "./command.ts";
import { describeLeaf, type HookAnswer, veto } from "./hooks.ts";
import { prepareMove } from "./leaving.ts";
import { moveStore } from "./migration.ts";
import { anySessionPath } from "./shapes.ts";

export const undoTarget = {
  operationId: z
    .string()
    .min(4)
    .optional()
    .describe("or an unambiguous beginning of one; by default the newest, see the command"),
  sessionPath: anySessionPath.describe("the newest of this session, by the path that it has or had"),
  sessionId: z.string().min(1).optional().describe("or by its id, or an unambiguous beginning of 4 characters or more"),
};

export const undoResult = z.object({
  operationId: z.string().describe("of the operation that was taken back or brought back"),
  newOperationId: z.string().describe("of this one, which can be taken back itself; empty when cancelled"),
  cancelled: z
    .literal(true)
    .optional()
    .describe("the hook session_before_tree refused a move of the leaf, and nothing was changed"),
  ...veto,
  kind: z.enum(OPERATION_KINDS).describe("of the former"),
  sessionId: z.string(),
  sessionPath: z.string().describe("where the session is now; where it was, if it is in the trash"),
  text: z.string().describe("one sentence: the event"),
  at: z.string().describe("when the former was done, ISO 8601"),
  also: z
    .array(
      z.object({
        operationId: z.string(),
        newOperationId: z.string(),
        sessionId: z.string(),
        sessionPath: z.string(),
        text: z.string(),
      }),
    )
    .optional()
    .describe("of a group: the others that were taken back or brought back with it, the newest first"),
  refused: z
    .array(
      z.object({
        operationId: z.string(),
        sessionId: z.string(),
        sessionPath: z.string(),
        name: z.string().nullable(),
        failure: z.object({ name: z.string(), message: z.string() }),
      }),
    )
    .optional()
    .describe("of a group: the operations that could not be taken back, and why; they stay as they are"),
});

type TakenBack = z.input<typeof undoResult>;

/** The reason of an operation whose ground is as before it, and that has no record of an undo. */
export const IS_BACK = "It was taken back already, by other means.";

/** The way of a client that shares the session with its holder. */
export const BY_OPPOSITE =
  "What you did yourself you can take back here by its opposite: branch, set_label, set_session_name.";

export const UNDO_FAILURES = [
  "operation_not_found",
  "ambiguous_id",
  "ground_moved",
  "cannot_undo",
  "session_locked",
  "not_a_session",
  "path_outside_root",
  "already_exists",
  "content_modified",
  "corrupt",
  "migration_failed",
  "entry_not_found",
] as const;

type WantedOperation = z.output<z.ZodObject<typeof undoTarget>>;

type Direction = TakingBack["kind"];

/** The operation to reverse, which is the latest of its chain, and the one that the person knows. */
interface ChosenOne {
  readonly latest: Operation;
  readonly root: Operation;
  readonly kind: Direction;
}

interface Chosen extends ChosenOne {
  /** Those that belong together with it and may be taken back here, the newest first. */
  readonly others: readonly ChosenOne[];
}

/** Returns the path of the session that a request is about. Throws what choosing throws. */
export function findUndoSubject(
  workspace: Workspace,
  wanted: WantedOperation,
  direction: Direction,
): string | undefined {
  const history = settled(workspace, false);
  return history.pathNow(chosen(workspace, history, wanted, direction).latest);
}

/** Undoes or redoes the wanted operation. No other process does so meanwhile. */
export function undoOrRedo(context: CommandContext, wanted: WantedOperation, direction: Direction): Promise<TakenBack> {
  const { workspace } = context;
  const { operations } = workspace.stores;
  return operations.alone(async () => {
    const history = settled(workspace, true);
    const choice = chosen(workspace, history, wanted, direction);
    try {
      if (choice.others.length > 0) return await groupReversed(context, history, choice);
      return await reversed(context, history, choice).catch((error) => {
        const isNamed = wanted.operationId !== undefined || !(error instanceof Failure);
        throw isNamed ? error : toNamedFailure(choice.root, error);
      });
    } catch (error) {
      throw direction === "undo" ? withNext(workspace, history, choice, wanted, error) : error;
    }
  });
}

/**
 * Reverses the operations of a group, the newest first. One that cannot be reversed stops none of the others: the result
 * names it. Throws when none could be reversed.
 */
async function groupReversed(context: CommandContext, history: History, first: Chosen): Promise<TakenBack> {
  const { root, kind, others } = first;
  const all = [first, ...others];
  const done: TakenBack[] = [];
  const refused: NonNullable<TakenBack["refused"]> = [];
  for (const [i, one] of all.entries())
    try {
      requireWayBack(one);
      done.push(await reversed(context, history, one, done[0]?.newOperationId));
      context.progress?.(i + 1, all.length);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      refused.push(refusalOf(history, one, error));
    }
  if (done.length === 0) throw allRefused(refused);
  const [{ newOperationId, sessionId, sessionPath, operationId }, ...also] = done;
  const event = formatGroup(root, all.length);
  const part = refused.length === 0 ? "" : ` ${done.length} of ${all.length}`;
  const text = `${WORDS[kind]}${part}: ${event}`;
  const facts = { operationId, newOperationId, kind: root.kind, sessionId, sessionPath, text, at: root.at };
  return {
    ...facts,
    also: also.map(({ kind: _kind, at: _at, ...one }) => one),
    ...(refused.length === 0 ? {} : { refused }),
  };
}

/** Returns the failure of an operation that the request did not name: its session may be another than the current one. */
function toNamedFailure(
  { id: operationId, sessionId, sessionPath, text: event }: Operation,
  failure: Failure,
): Failure {
  const { name, text, details, retryable } = failure;
  const what = `The operation is ${operationId}: ${event} ${text.what}`;
  return new Failure(name, { ...text, what }, { operationId, sessionId, sessionPath, ...details }, { retryable });
}

/** Returns a failure that repeating does not mend, with the next older operation: otherwise undo would end here for good. */
function withNext(
  workspace: Workspace,
  history: History,
  { root, latest, kind }: ChosenOne,
  wanted: WantedOperation,
  error: unknown,
): unknown {
  if (!(error instanceof Failure) || error.retryable || kind !== "undo") return error;
  const { operations } = history;
  const older = new Set(operations.slice(0, operations.indexOf(root)));
  const group = history.groupOf(latest);
  const counts = makeUndoFilter(workspace, history, wanted);
  const next = findWayBack(workspace, history, (one) => older.has(one) && !group.includes(one) && counts(one));
  if (!next) return error;
  const { name, text, details, retryable } = error;
  const on = `The next older operation is ${next.id}: ${next.text} Undo that by its id.`;
  const advice = text.advice === undefined ? on : `${text.advice} ${on}`;
  return new Failure(name, { ...text, advice }, { ...details, next: toNext(next) }, { retryable });
}

/** Returns the newest operation that has a way back, as far as that is known without trying it. */
function findWayBack(
  { stores }: Workspace,
  history: History,
  counts: (one: Operation) => boolean,
): Operation | undefined {
  const { lifeCycle } = stores;
  const isGone = makeGoneTest(stores, history);
  const hasWayBack = (latest: Operation): boolean => {
    const { step } = latest;
    if (isGone(latest) || lifeCycle.isBack(latest) || lifeCycle.isLost(latest)) return false;
    return step?.do !== "change" || stores.exists(history.pathNow(latest) ?? step.path);
  };
  return history.nextToUndo((one) => counts(one) && hasWayBack(history.latest(one)));
}

/** Returns a test for operations whose session was deleted since, and is not in the server's trash any more. */
export function makeGoneTest({ lifeCycle }: Stores, history: History): (operation: Operation) => boolean {
  // Looking for a lost session reads the whole trash.
  const known = new Map<Operation, boolean>();
  return (operation) => {
    const deletion = history.deletionOf(operation);
    if (deletion === undefined) return false;
    const isGone = known.get(deletion) ?? lifeCycle.isLost(deletion);
    known.set(deletion, isGone);
    return isGone;
  };
}

/** Returns the facts about the operation that a failure advises to undo. */
function toNext({ id: operationId, sessionId, sessionPath }: Operation) {
  return { operationId, sessionId, sessionPath };
}

const WORDS: Readonly<Record<Direction, string>> = { undo: "Took back", redo: "Did again" };

function refusalOf(history: History, { latest, root }: ChosenOne, { name, message }: Failure) {
  const sessionPath = history.pathNow(latest) ?? root.sessionPath;
  return { operationId: root.id, sessionId: root.sessionId, sessionPath, name: root.name, failure: { name, message } };
}

/** Returns the failure of a group without any reversible operation. */
function allRefused(refused: NonNullable<TakenBack["refused"]>): Failure {
  const [{ failure }] = refused;
  const isOne = refused.every((one) => one.failure.name === failure.name);
  const count = refused.length === 1 ? "" : ` (and ${refused.length - 1} more)`;
  const { sessionId, name } = refused[0];
  const sentence = `${name === null ? sessionId : quoteText(name)}${count}: ${failure.message}`;
  return new Failure(isOne ? (failure.name as FailureName) : "ground_moved", sentence, { refused });
}

/**
 * Returns the operations, after finding out of those that were begun whether they happened. `records`: whether others
 * are to know that too.
 */
function settled({ stores: { lifeCycle, operations } }: Workspace, records: boolean): History {
  const lines = operations.lines();
  const found: object[] = [];
  for (const operation of new History(lines).operations)
    if (operation.stage === "begun" && operation.final === undefined) {
      const step = lifeCycle.stepOf(operation);
      if (step === undefined) continue;
      found.push({ concluded: operation.id, step });
      if (records) operations.conclude(operation.id, step);
    }
  return new History([...lines, ...found]);
}

/** Returns the operation that a request means. Throws operation_not_found, ambiguous_id, cannot_undo. */
function chosen(workspace: Workspace, history: History, wanted: WantedOperation, direction: Direction): Chosen {
  const counts = makeUndoFilter(workspace, history, wanted);
  const named = wanted.operationId === undefined ? undefined : history.find(wanted.operationId);
  if (named && !counts(named)) throw new Failure("operation_not_found", undefined, { operationId: wanted.operationId });
  const found = named ?? (direction === "undo" ? history.nextToUndo(counts) : history.nextToRedo(counts));
  if (!named && direction === "undo") requireLast(workspace, history, counts, wanted);
  if (!found)
    throw new Failure(
      "operation_not_found",
      direction === "undo"
        ? "There is nothing to undo. list_operations shows what happened."
        : "There is nothing to redo: the last operation is not an undo. Name an undone operation by its id to redo that one.",
    );
  const root = history.root(found) ?? found;
  const latest = history.latest(found);
  // To undo an undo is to redo.
  const kind: Direction = latest.kind === "undo" ? "redo" : "undo";
  const isMeant = direction === kind || (direction === "undo" && found === latest);
  if (!isMeant) throw isSo(root, latest, direction);
  const choice = { latest, root, kind };
  // Naming one of a group means that one; the first stands for all.
  const isWhole = named === undefined || history.groupOf(named)[0] === named;
  const others = isWhole ? togetherWith(history, choice, counts) : [];
  if (others.length === 0) requireWayBack(choice);
  return { ...choice, others };
}

/** Throws cannot_undo where the last operation has no way back: an older one is taken back only if it is named. */
function requireLast(
  workspace: Workspace,
  history: History,
  counts: (one: Operation) => boolean,
  { sessionPath, sessionId }: WantedOperation,
): void {
  const last = history.newest(counts);
  if (last?.final === undefined) return;
  const next = findWayBack(workspace, history, counts);
  if (next && history.groupOf(last).includes(next)) return;
  const after = next
    ? `The newest that can be undone is ${next.id}: ${next.text} Undo that by its id.`
    : `Nothing else${(sessionPath ?? sessionId) === undefined ? "" : " of this session"} can be undone.`;
  const sentence = `The last operation cannot be undone: ${last.text} ${last.final} ${after}`;
  throw new Failure("cannot_undo", sentence, { operationId: last.id, ...(next && { next: toNext(next) }) });
}

/** Returns the operations that stand as the one that was chosen, and belong together with it. */
function togetherWith(history: History, { latest, kind }: ChosenOne, counts: (one: Operation) => boolean) {
  const others = history.groupOf(latest).filter((one) => one !== latest && history.latest(one) === one && counts(one));
  return others.reverse().map((one) => ({ latest: one, root: history.root(one) ?? one, kind }));
}

/** Throws cannot_undo for an operation that has no way back. */
function requireWayBack({ latest, root }: ChosenOne): void {
  const final = latest.final ?? root.final;
  if (final !== undefined) throw new Failure("cannot_undo", final, { operationId: latest.id });
}

/** Returns the failure of an undo of an undone operation, or of a redo of one that is in effect. */
function isSo({ id }: Operation, latest: Operation, direction: Direction): Failure {
  const sentence =
    direction === "undo"
      ? `It was undone already, by ${latest.id}. redo brings it back.`
      : "It stands as it is, so that there is nothing to redo. undo takes it back.";
  return new Failure("cannot_undo", sentence, { operationId: id, latest: latest.id });
}

/** Returns a test for the operations that a request may mean: of its session, and of paths that may be used. */
export function makeUndoFilter(
  { stores }: Workspace,
  history: History,
  { sessionPath, sessionId }: WantedOperation,
): (operation: Operation) => boolean {
  const ofPath = sessionPath === undefined ? undefined : history.ofPath(stores.absolute(sessionPath));
  const id = sessionId === undefined ? undefined : history.sessionId(sessionId);
  return (operation) => {
    if (ofPath && !ofPath(operation)) return false;
    if (id !== undefined && operation.sessionId !== id) return false;
    return stores.lifeCycle.isAllowed(operation.sessionPath);
  };
}

/** Reverses the latest step of an operation. */
async function reversed(
  context: CommandContext,
  history: History,
  { latest, root, kind }: ChosenOne,
  group?: string,
): Promise<TakenBack> {
  const { workspace } = context;
  const { lifeCycle, operations } = workspace.stores;
  const { step } = latest;
  if (step === undefined) throw new Failure("cannot_undo", undefined, { operationId: root.id });
  const text = `${WORDS[kind]}: ${root.text}`;
  const as: TakingBack = { kind, of: root.id, text, group };
  const facts = { operationId: root.id, kind: root.kind, sessionId: root.sessionId, text, at: root.at };
  if (step.do === "change") {
    const path = history.pathNow(latest) ?? step.path;
    const done = await onSession(context, latest, path, as);
    if (typeof done === "string") return { ...facts, newOperationId: done, sessionPath: path };
    const { reason, message } = done;
    const refused = { cancelled: true as const, reason, message, text: "The host refused, and nothing was changed." };
    return { ...facts, ...refused, newOperationId: "", sessionPath: path };
  }
  if (step.do === "convert") {
    await convertBack(context, latest, as);
    const newest = History.of(operations).latest(root);
    const sessionPath = (newest.step && getPathAfter(newest.step)) ?? step.from;
    return { ...facts, newOperationId: newest.id, sessionPath };
  }
  if (step.do === "swap") requireNoneSince(history, latest);
  else await comesToPlace(workspace, latest);
  const { operationId, sessionPath = root.sessionPath } = await whileClosed(context, getPathAfter(step), step.do, () =>
    lifeCycle.takeBack(latest, as),
  ).catch((error) => {
    const isBack = error instanceof Failure && error.name === "ground_moved" && lifeCycle.isBack(latest);
    if (!isBack) throw error;
    throw new Failure(error.name, { ...error.text, what: `${error.text.what} ${IS_BACK}` }, error.details);
  });
  return { ...facts, newOperationId: operationId, sessionPath };
}

/** Has a session that is not where a move left it come to where it is for other machines: they may have moved it back. */
async function comesToPlace(workspace: Workspace, { step, sessionId }: Operation): Promise<void> {
  const isMove = step?.do === "move" || step?.do === "relocate" || step?.do === "return";
  if (!isMove || sessionId === null || workspace.stores.idIn(step.to) !== undefined) return;
  try {
    await workspace.arrive({ sessionId, isWhole: true });
  } catch (error) {
    // The check at the session's place decides whether there is something to take back.
    if (!(error instanceof Failure)) throw error;
  }
}

/** Throws ground_moved when names, labels or the leaf were changed since in a session whose file is about to be swapped. */
function requireNoneSince(history: History, operation: Operation): void {
  const later = history.operations.slice(history.operations.indexOf(operation) + 1);
  const remaining = later.filter(
    (one) =>
      one.sessionId === operation.sessionId &&
      one.step?.do === "change" &&
      one.of === undefined &&
      !history.isUndone(one),
  );
  if (remaining.length > 0)
    throw toConflictFailure(
      `Undo the later operations on the session first: ${remaining.map(({ id }) => id).join(", ")}.`,
      {
        later: remaining.map(({ id }) => id),
      },
    );
}

/** Takes a migration or a rollback back by the other one. A session that is open here goes on in its new place. */
async function convertBack(context: CommandContext, { step, sessionId }: Operation, as: TakingBack): Promise<void> {
  const { migrations } = context.workspace.stores;
  if (step?.do !== "convert") return;
  const { active, location } = migrations.status(step.to);
  const isThere = (active === "native_v2") === (step.into === "v2") && location.sessionId === sessionId;
  if (!isThere) throw toConflictFailure("The session is in its former store already.", { active });
  const options = { as, progress: context.progress };
  await moveStore(context, step.to, (path) =>
    step.into === "v2" ? migrations.rollBack(path, options) : migrations.migrate(path, options),
  );
}

/** Runs what needs a session that is not open here; after a repair's undo, one that was open goes on. */
async function whileClosed<T>(
  context: CommandContext,
  path: string | undefined,
  step: string,
  run: () => Promise<T>,
): Promise<T> {
  const { workspace } = context;
  const open = path === undefined ? undefined : workspace.openAt(path);
  if (!open) return run();
  if (step !== "swap") throw makeOpenHereFailure(open.id, path, step === "appear" ? open.parentSession : null);
  requireLane(context, open);
  return context.alone(open, async () => {
    await open.commit();
    await open.suspend();
    try {
      return await run();
    } finally {
      open.externalChanges.rebase(workspace.stores.open(path as string), { isRepair: true });
    }
  });
}

/** Throws content_modified unless the request runs in the lane of this session. */
function requireLane({ target }: CommandContext, session: Session): void {
  if (session === target) return;
  const sentence = "Another operation became the newest one meanwhile. Try again.";
  throw new Failure("content_modified", sentence, {}, { retryable: true });
}

/** Takes a change of a session back, in its lane if it is open here. Returns the new operation's id, or the veto. */
async function onSession(
  context: CommandContext,
  operation: Operation,
  path: string,
  as: TakingBack,
): Promise<string | HookAnswer> {
  const { workspace } = context;
  const open = workspace.openAt(path);
  if (open) {
    requireLane(context, open);
    open.guard(undefined);
    const veto = await vetoOn(context, open, operation.step as SessionChange);
    return veto ?? changeBack(context, open, operation, as);
  }
  let session: Session;
  try {
    session = workspace.open({ sessionPath: path });
  } catch (error) {
    if (error instanceof Failure && error.name === "session_not_found")
      throw toConflictFailure(`There is no session at ${path} any more.`, { path });
    throw error;
  }
  try {
    session.guard(undefined);
    await requireWriter(session);
    const id = changeBack(null, session, operation, as);
    await session.commit();
    await session.leave();
    return id;
  } finally {
    workspace.release(session);
  }
}

/** Asks the host before the leaf of an open session moves, as branch does. Returns its answer if that is no. */
async function vetoOn(
  context: CommandContext,
  session: Session,
  { leaf: [before, after], follows }: SessionChange,
): Promise<HookAnswer | undefined> {
  // A name and a label are set at the leaf, which only follows: that is no move through the tree.
  const moves = follows !== true && before !== after && session.leafId === after;
  if (!moves || !context.asks("session_before_tree")) return undefined;
  const target = before === null ? ROOT : session.find(before);
  if (before !== null && target < 0) return undefined;
  const preparation = prepareMove(session, target);
  const answer = await context.ask("session_before_tree", { preparation, ...describeLeaf(session) });
  return answer.cancelled ? answer : undefined;
}

/** Makes the entries and the move that take a change back, and notifies the host of an open session. */
function changeBack(
  context: CommandContext | null,
  session: Session,
  { sessionId, step }: Operation,
  as: TakingBack,
): string {
  if (session.id !== sessionId)
    throw toConflictFailure(`${session.file} is another session now.`, { path: session.file });
  const change = step as SessionChange;
  if (isUnknownTo(session, change))
    throw toConflictFailure("The session does not have it: it was not saved, or it was taken back by other means.");
  const oldLeafId = session.leafId;
  const oldName = session.name;
  const notify: CommandContext["notify"] = (name, payload) => context?.notify(name, payload);
  const append = (drafts: readonly Draft[]): readonly string[] => {
    const { ids } = session.append(drafts, undefined, false);
    notifyAppended({ notify }, session, ids);
    return ids;
  };
  const done = takeBackChange(session, change, append);
  const { leafId, name } = session;
  if (name !== oldName) notify("session_info_changed", { name });
  if (leafId !== oldLeafId) notify("session_tree", { newLeafId: leafId, oldLeafId });
  return session.note({ ...as, step: done }) ?? "";
}
