/** The recorded operations: the active ones, the ones that were taken back, and the next for undo and redo. */

import { Failure, type FailureText } from "../failure.ts";
import { addTo } from "../lists.ts";
import {
  type IdChange,
  OPERATION_KINDS,
  type Operation,
  type OperationEnd,
  type OperationKind,
  type OperationLog,
  type OperationStep,
} from "../ports/operations.ts";

/** Characters of an id that must be given at least. */
export const SHORTEST_ID = 4;
/** Operations that a failure lists at most. */
const MOST_LISTED = 3;

/** Beginnings of sentences about operations on several sessions as one. */
export const DID = {
  archive: "Archived",
  unarchive: "Brought back from the archive:",
  delete: "Deleted",
  relocate: "Relocated",
  import: "Imported",
} as const;

/** Members of each step that must be strings. */
const NEEDED: Readonly<Record<OperationStep["do"], readonly string[]>> = {
  change: ["path"],
  move: ["from", "to"],
  trash: ["from"],
  appear: ["to"],
  relocate: ["from", "to", "cwd", "header"],
  return: ["from", "to", "cwd"],
  convert: ["from", "to", "into"],
  swap: ["path"],
  prune: [],
  unprune: [],
};

type StoredMembers = Readonly<Record<string, unknown>>;

/** An operation while its lines are put together. */
interface GatheredOperation {
  operation: Operation;
  isFailed: boolean;
  /** True if the process that made the change recorded its outcome. */
  isConcluded: boolean;
}

export class History {
  /** The operations that happened, or may have, the oldest first. */
  readonly operations: readonly Operation[];
  /** Each operation that is no undo and no redo, by id, with those after it that took it back or brought it back. */
  private readonly chains = new Map<string, Operation[]>();
  private readonly byId = new Map<string, Operation>();
  /** Operations that belong together, the oldest first, by the id of the first. */
  private readonly groups = new Map<string, Operation[]>();
  /** The last deletion of each session that no operation brought back, by the session's id. */
  private readonly deletions = new Map<string, Operation>();

  constructor(lines: Iterable<unknown>) {
    this.operations = gathered(lines);
    for (const operation of this.operations) {
      addTo(this.chains, operation.of ?? operation.id, operation);
      addTo(this.groups, operation.group ?? operation.id, operation);
      this.byId.set(operation.id, operation);
      if (operation.step?.do === "trash") this.deletions.set(operation.sessionId, operation);
      else if (operation.step?.do === "appear") this.deletions.delete(operation.sessionId);
    }
  }

  static of(log: OperationLog): History {
    return new History(log.lines());
  }

  /** Returns the operation with an id, or with the only id that begins so. Throws operation_not_found, ambiguous_id. */
  find(beginning: string): Operation {
    const exact = this.byId.get(beginning);
    if (exact) return exact;
    const found =
      beginning.length < SHORTEST_ID ? [] : this.operations.filter(({ id }) => id.startsWith(beginning.toLowerCase()));
    if (found.length === 1) return found[0];
    if (found.length === 0)
      throw new Failure(
        "operation_not_found",
        `No operation has the id ${beginning}. list_operations shows those that are recorded; ${SHORTEST_ID} characters of an id are enough.`,
        { operationId: beginning },
      );
    const named = found.slice(0, MOST_LISTED).map(({ id, text }) => `${id} (${text})`);
    const more = found.length > MOST_LISTED ? ` and ${found.length - MOST_LISTED} more` : "";
    const sentence = `Several operation ids begin with this: ${named.join(", ")}${more}. Give more of it.`;
    throw new Failure("ambiguous_id", sentence, { operationId: beginning, matches: found.length });
  }

  /** Returns the only session id of an operation that begins so, else the given text. Throws ambiguous_id. */
  sessionId(beginning: string): string {
    const ids = new Set(this.operations.map(({ sessionId }) => sessionId));
    if (ids.has(beginning) || beginning.length < SHORTEST_ID) return beginning;
    const found = [...ids].filter((id) => id.startsWith(beginning));
    if (found.length < 2) return found[0] ?? beginning;
    const named = found.slice(0, MOST_LISTED).map((id) => {
      const name = this.operations.findLast(({ sessionId }) => sessionId === id)?.name ?? null;
      return name === null ? id : `${id} (${quoteText(name)})`;
    });
    const more = found.length > MOST_LISTED ? ` and ${found.length - MOST_LISTED} more` : "";
    const sentence = `Several session ids begin with this: ${named.join(", ")}${more}. Give more of it.`;
    throw new Failure("ambiguous_id", sentence, { sessionId: beginning, matches: found.length });
  }

  /** Returns the latest undo or redo of an operation, else the operation itself. */
  latest({ id, of }: Operation): Operation {
    return (this.chains.get(of ?? id) as Operation[]).at(-1) as Operation;
  }

  /** Returns the deletion of the session of an operation, or one of its undos and redos, if it is in effect. */
  deletionOf({ sessionId }: Operation): Operation | undefined {
    return this.deletions.get(sessionId);
  }

  /** Returns the operations that belong together with one, itself among them, the oldest first. */
  groupOf({ id, group }: Operation): readonly Operation[] {
    return this.groups.get(group ?? id) as Operation[];
  }

  /** Returns the operation that an undo or redo is about; undefined when that is no longer recorded. */
  root({ id, of }: Operation): Operation | undefined {
    return this.byId.get(of ?? id);
  }

  isUndone(operation: Operation): boolean {
    return this.latest(operation).kind === "undo";
  }

  /** Returns the operation that took this one back, or repeated the one that this one took back. */
  undoneBy(operation: Operation): Operation | undefined {
    const chain = this.chains.get(operation.of ?? operation.id) as Operation[];
    const latest = chain[chain.length - 1];
    if (operation.kind === "undo") return chain[chain.indexOf(operation) + 1];
    return latest.kind === "undo" ? latest : undefined;
  }

  /** Returns the newest active operation among those that `counts` accepts. */
  newest(counts: (operation: Operation) => boolean): Operation | undefined {
    return this.operations.findLast(
      (one) => one.kind !== "undo" && one.kind !== "redo" && counts(one) && !this.isUndone(one),
    );
  }

  /** Returns the newest of those that can be taken back. */
  nextToUndo(counts: (operation: Operation) => boolean): Operation | undefined {
    return this.newest((one) => one.final === undefined && counts(one));
  }

  /** Returns the newest undo that was not brought back, if nothing but undo and redo came after it. */
  nextToRedo(counts: (operation: Operation) => boolean): Operation | undefined {
    for (let i = this.operations.length - 1; i >= 0; i--) {
      const operation = this.operations[i];
      if (!counts(operation)) continue;
      if (operation.kind !== "undo" && operation.kind !== "redo") return undefined;
      if (operation.kind === "undo" && this.latest(operation) === operation) return operation;
    }
    return undefined;
  }

  /** Returns the path that the session of an operation has now, as far as operations moved it; undefined in the trash. */
  pathNow(operation: Operation): string | undefined {
    const { step } = operation;
    let path = step && (getPathAfter(step) ?? pathBefore(step));
    let isInTrash = step?.do === "trash";
    for (let i = this.operations.indexOf(operation) + 1; i < this.operations.length; i++) {
      const { step: later } = this.operations[i];
      if (later?.do === "appear" && later.to === path) isInTrash = false;
      else if (later?.do === "trash" && later.from === path) isInTrash = true;
      else if (later && pathBefore(later) === path) path = getPathAfter(later);
    }
    return isInTrash ? undefined : path;
  }

  /** Returns a test for the operations of the session that is, or was, at a path, wherever it was before. */
  ofPath(path: string): (operation: Operation) => boolean {
    const paths = new Set([path]);
    const endsOf = ({ step, sessionPath }: Operation): (string | undefined)[] =>
      step ? [pathBefore(step), getPathAfter(step), sessionPath] : [sessionPath];
    const isOf = (operation: Operation): boolean =>
      endsOf(operation).some((end) => end !== undefined && paths.has(end));
    // A session may have been at a path before, and at another since.
    for (let known = 0; known < paths.size; ) {
      known = paths.size;
      for (const operation of this.operations)
        if (isOf(operation)) for (const end of endsOf(operation)) if (end !== undefined) paths.add(end);
    }
    return isOf;
  }
}

/** Returns the event that several operations of one kind are, as a sentence. */
export function formatGroup({ kind, text }: Operation, size: number): string {
  return kind in DID ? `${DID[kind as keyof typeof DID]} ${size} sessions.` : `${text} And ${size - 1} more.`;
}

/** Returns the path that a session had before a step; undefined when it had none. */
function pathBefore(step: OperationStep): string | undefined {
  if ("path" in step) return step.path;
  return "from" in step ? step.from : undefined;
}

/** Returns the path that a session has after a step; undefined when it is in the trash. */
export function getPathAfter(step: OperationStep): string | undefined {
  if ("path" in step) return step.path;
  return "to" in step ? step.to : undefined;
}

/**
 * Puts the lines of each operation together. The last line with an outcome counts; conclusions of other processes count
 * only while the process that made the change has recorded none.
 */
function gathered(lines: Iterable<unknown>): Operation[] {
  const all = new Map<string, GatheredOperation>();
  for (const line of lines) {
    const { done, failed, concluded } = line as { done?: unknown; failed?: unknown; concluded?: unknown };
    if (Array.isArray(failed)) for (const id of failed) setFailed(all.get(id));
    else if (typeof done === "string") setDone(all.get(done), line as StoredMembers);
    else if (typeof concluded === "string") setConcluded(all.get(concluded), line as StoredMembers);
    else if (isOperation(line) && !all.has(line.id))
      all.set(line.id, { operation: line, isFailed: false, isConcluded: line.stage === "done" });
  }
  return [...all.values()].filter(({ isFailed }) => !isFailed).map(({ operation }) => operation);
}

function setFailed(known: GatheredOperation | undefined): void {
  if (!known) return;
  known.isFailed = true;
  known.isConcluded = true;
}

function setDone(known: GatheredOperation | undefined, { done: _id, ...outcome }: StoredMembers): void {
  if (known && complete(known, outcome)) known.isConcluded = true;
}

function setConcluded(known: GatheredOperation | undefined, { step }: StoredMembers): void {
  if (!known || known.isConcluded) return;
  if (step === false) known.isFailed = true;
  else complete(known, { step });
}

/** Completes an operation with its outcome. Returns false, and changes nothing, if that is not valid. */
function complete(known: GatheredOperation, outcome: StoredMembers): boolean {
  const whole = { ...known.operation, ...(outcome as OperationEnd), stage: "done" as const };
  if (!isOperation(whole)) return false;
  known.operation = whole;
  known.isFailed = false;
  return true;
}

function isOperation(value: unknown): value is Operation {
  if (typeof value !== "object" || value === null) return false;
  const found = value as StoredMembers;
  const { kind, name, step, stage, of, final, group } = found;
  const texts = ["id", "at", "sessionId", "sessionPath", "text"];
  if (!texts.every((key) => typeof found[key] === "string")) return false;
  if (![of, final, group].every((text) => text === undefined || typeof text === "string")) return false;
  if (!OPERATION_KINDS.includes(kind as OperationKind) || (kind === "undo" || kind === "redo") !== (of !== undefined))
    return false;
  const isNamed = name === null || typeof name === "string";
  return isNamed && (stage === "begun" || stage === "done") && (step === undefined || isStep(step));
}

function isStep(value: unknown): value is OperationStep {
  if (typeof value !== "object" || value === null) return false;
  const step = value as StoredMembers;
  if (!Object.hasOwn(NEEDED, step.do as string)) return false;
  if (!NEEDED[step.do as OperationStep["do"]].every((key) => typeof step[key] === "string")) return false;
  if (![step.item, step.keptAt, step.other].every((path) => path === undefined || typeof path === "string"))
    return false;
  if (step.do === "change") return isChange(step);
  if (step.do === "swap") return typeof step.inode === "number";
  if (step.do !== "prune" && step.do !== "unprune") return true;
  return Array.isArray(step.files) && step.files.every((file) => typeof file === "string");
}

function isChange({ leaf, name, nameSet, labels = [] }: StoredMembers): boolean {
  if (!isIdChange(leaf) || !(name === undefined || isIdChange(name)) || !Array.isArray(labels)) return false;
  const isText = (text: unknown): boolean => text === undefined || text === null || typeof text === "string";
  return (
    isText(nameSet) &&
    labels.every((label) => typeof label?.target === "string" && isIdChange(label.set) && isText(label.textSet))
  );
}

function isIdChange(value: unknown): value is IdChange {
  const isId = (id: unknown): boolean => id === null || typeof id === "string";
  return Array.isArray(value) && value.length === 2 && value.every(isId);
}

/** Characters of a text that a sentence quotes. */
const QUOTED = 60;

/** Returns a text as a quotation, cut to a line. */
export function quoteText(text: string): string {
  const line = Array.from(
    text
      .slice(0, 4 * QUOTED)
      .replace(/\s+/g, " ")
      .trim(),
  );
  return `"${
    line.length > QUOTED
      ? `${line
          .slice(0, QUOTED - 1)
          .join("")
          .trimEnd()}…`
      : line.join("")
  }"`;
}

/** Returns the failure of an undo whose ground is not as the operation left it. */
export function toConflictFailure(said: string | FailureText, details: Failure["details"] = {}): Failure {
  const { what, ...rest } = typeof said === "string" ? { what: said } : said;
  return new Failure(
    "ground_moved",
    { what: `What the operation changed has changed since. ${what}`, ...rest },
    details,
  );
}
