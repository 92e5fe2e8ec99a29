/** Changes of whole sessions as operations: recorded before they begin, and checked if their end is not recorded. */

import { Failure } from "../../core/failure.ts";
import { getContentText, toPreview } from "../../core/format/message.ts";
import { parse } from "../../core/json/json.ts";
import type {
  BegunOperation,
  NewOperation,
  Operation,
  OperationEnd,
  OperationStep,
  StepOf,
} from "../../core/ports/operations.ts";
import type { Log } from "../../core/ports/store.ts";
import { quoteText } from "../../core/session/history.ts";
import { KNOWN_TYPES } from "../../core/tree/nodes.ts";
import { headerFile, isContainerName } from "../fs/container-paths.ts";
import { exists } from "../fs/disk.ts";
import { getInfo, isNameTaken } from "../fs/files.ts";
import { readHeader } from "../fs/header.ts";
import { listBackups } from "../fs/quarantine.ts";
import { isOneFile } from "../fs/stamps.ts";
import { readMigrationStatus, resolveContainerFolder } from "../v2/pointer.ts";
import type { LifecycleDeps, LockedSession } from "./exclusive.ts";
import { readHeaderText } from "./header-lines.ts";
import { findItemFrom, findOwnItem, isInTrash, readItem } from "./trash-items.ts";

const NAME = KNOWN_TYPES.indexOf("session_info");
const MESSAGE = KNOWN_TYPES.indexOf("message");

/** Characters of a first message that help a person to recognize a session. */
const FIRST_MESSAGE = 200;

/** Facts by which a person recognizes a session. */
export interface TitleFacts {
  readonly name: string | null;
  /** The first characters of what the user said first. */
  readonly firstMessage: string | null;
  /** Its name or first words, as a quotation, else its id. */
  readonly title: string;
  readonly messageCount: number;
}

/** Returns the facts by which a person recognizes a session. Unreadable facts are left out. */
export function getTitleFacts(log: Log): TitleFacts {
  const { nodes } = log;
  const { types } = nodes.columns();
  const named = types.lastIndexOf(NAME, nodes.count - 1);
  let messageCount = 0;
  for (let p = 0; p < nodes.count; p++) if (types[p] === MESSAGE) messageCount++;
  const name = named < 0 ? null : textOf(log, named, (entry) => entry.name);
  let first = 0;
  while (first < nodes.count && nodes.role(first) !== "user") first++;
  const said = first < nodes.count ? textOf(log, first, (entry) => getContentText(entry.message?.content)) : null;
  const firstMessage = said === null ? null : toPreview(said, FIRST_MESSAGE);
  return { name, firstMessage, title: makeTitle(name ?? said, log.header.id), messageCount };
}

interface SomeEntry {
  readonly name?: unknown;
  readonly message?: { readonly content?: unknown };
}

function textOf(log: Log, position: number, pick: (entry: SomeEntry) => unknown): string | null {
  try {
    const text = pick(parse(log.read(position)) as SomeEntry);
    return typeof text === "string" && text.trim() !== "" ? text.trim() : null;
  } catch {
    return null;
  }
}

/** Returns a text as a quotation; without one, the beginning of an id. */
export function makeTitle(text: string | null, id: string): string {
  return text === null ? id.slice(0, 8) : quoteText(text);
}

/** Returns the members of an operation from its session. */
export function describeSession({ file, sessionId }: LockedSession, { name }: TitleFacts) {
  return { sessionId, sessionPath: file, name };
}

/**
 * Runs a change between the two lines of its record. A failed one is recorded as failed only if its beginning is still
 * in place: an interrupted change is found, and undone, like a finished one.
 */
export async function runRecorded<T>(
  deps: LifecycleDeps,
  operation: NewOperation,
  run: (begun: BegunOperation) => Promise<T>,
  outcome: (result: T) => OperationEnd | null,
): Promise<T> {
  const { operations } = deps;
  const begun = await operations.begin(operation);
  let result: T;
  try {
    result = await run(begun);
  } catch (error) {
    // If the name was taken, another process has made the file; if the ground moved, nothing was done.
    const isRefused = isNameTaken(error) || (error instanceof Failure && error.name === "ground_moved");
    if (isRefused || hasHappened(deps, { ...operation, ...begun, stage: "begun" }) === false)
      operations.failed([begun.id]);
    throw error;
  }
  const end = outcome(result);
  if (end === null) operations.failed([begun.id]);
  else operations.done(begun.id, end);
  return result;
}

/** Returns the step of a begun operation, if it happened; false if not; undefined if that is unknown. */
export function hasHappened(deps: LifecycleDeps, operation: Operation): OperationStep | false | undefined {
  return judge(deps, operation, (judge, look, step) => judge.findOutcome(look, step));
}

/** Looks at the disk for an operation. */
interface StepLook {
  readonly deps: LifecycleDeps;
  readonly operation: Operation;
  isThere(path: string): boolean;
  /** Returns whether the operation's session is at a path. */
  hasSession(path: string): boolean;
}

/** Judges a kind of step by what is on the disk. */
interface StepJudge<S extends OperationStep> {
  /** Returns the step, completed, if it happened; false if not; undefined if that is unknown. */
  findOutcome(look: StepLook, step: S): OperationStep | false | undefined;
  /** Returns whether everything is as before the step; missing if only its session or store shows that. */
  isRestored?(look: StepLook, step: S): boolean;
  /** Returns whether the trash does not have its files any more; missing if it puts none there. */
  isLost?(look: StepLook, step: S): boolean;
}

const MOVE: StepJudge<StepOf<"move" | "relocate" | "return">> = {
  findOutcome: ({ deps }, step) => hasMoved(deps, step.from, step.to) && step,
  isRestored: ({ isThere, hasSession }, { from, to }) => from !== to && hasSession(from) && !isThere(to),
};

const JUDGES: { readonly [K in OperationStep["do"]]: StepJudge<StepOf<K>> } = {
  change: { findOutcome: () => undefined },
  move: MOVE,
  return: MOVE,
  relocate: { ...MOVE, findOutcome: ({ deps }, step) => hasRelocated(deps, step) && step },
  appear: {
    findOutcome({ deps: { disk }, isThere }, step) {
      const item = step.item === undefined ? undefined : readItem(disk, step.item);
      if (item && exists(disk, item.file)) return isThere(step.to) && isOneFile(disk, item.file, step.to) && step;
      return isThere(step.to) ? step : step.item === undefined && false;
    },
    isRestored: ({ deps, operation, isThere }, { to }) =>
      !isThere(to) && findItemFrom(deps, to, operation.sessionId) !== undefined,
  },
  trash: {
    findOutcome: ({ deps, operation }, step) => trashedAs(deps, operation, step),
    isRestored: ({ hasSession }, { from }) => hasSession(from),
    isLost({ deps, operation, isThere }, { from, item }) {
      if ((item !== undefined && isInTrash(deps.disk, item)) || isThere(from)) return false;
      return findItemFrom(deps, from, operation.sessionId) === undefined;
    },
  },
  convert: {
    findOutcome({ deps, isThere }, step) {
      const { active } = readMigrationStatus(deps.disk, isThere(step.from) ? step.from : deps.allowed(step.to));
      return (active === "native_v2") === (step.into === "v2") && step;
    },
  },
  swap: {
    findOutcome({ deps }, step) {
      if (findInode(deps, step.path) === step.inode) return false;
      const other = step.other ?? backupWith(deps, step.path, step.inode);
      return other === undefined ? undefined : { ...step, other };
    },
    isRestored: ({ deps }, { path, inode }) => findInode(deps, path) === inode,
  },
  prune: {
    findOutcome({ deps, operation }, step) {
      const item = findOwnItem(deps, operation.id) ?? step.item;
      return item !== undefined && isInTrash(deps.disk, item) && { ...step, item };
    },
    isRestored: ({ isThere }, { files }) => files.every(isThere),
    isLost: ({ deps, isThere }, { files, item }) =>
      !(item !== undefined && isInTrash(deps.disk, item)) && !files.every(isThere),
  },
  unprune: {
    findOutcome({ deps, operation, isThere }, step) {
      const item = findOwnItem(deps, operation.id) ?? step.item;
      return !(item !== undefined && isInTrash(deps.disk, item)) && step.files.every(isThere) && step;
    },
  },
};

/**
 * Returns whether a session is at its place before an operation; one that was added, whether it is in the trash. A
 * session that is missing for another reason is not back: undo refuses, and undoes nothing older.
 */
export function isRestored(deps: LifecycleDeps, operation: Operation): boolean {
  return judge(deps, operation, (judge, look, step) => judge.isRestored?.(look, step)) ?? false;
}

/** Returns whether the trash does not have any more what an operation put there. */
export function isLost(deps: LifecycleDeps, operation: Operation): boolean {
  return judge(deps, operation, (judge, look, step) => judge.isLost?.(look, step)) ?? false;
}

/** Returns what a step's judge answers; undefined without a step, and if the disk or a path refuses to be looked at. */
function judge<T>(
  deps: LifecycleDeps,
  operation: Operation,
  ask: (judge: StepJudge<OperationStep>, look: StepLook, step: OperationStep) => T,
): T | undefined {
  const { step } = operation;
  if (step === undefined) return undefined;
  const isThere = (path: string): boolean => exists(deps.disk, deps.allowed(path));
  const hasSession = (path: string): boolean =>
    isThere(path) && readHeader(deps.disk, path)?.id === operation.sessionId;
  try {
    return ask(JUDGES[step.do], { deps, operation, isThere, hasSession }, step);
  } catch {
    return undefined;
  }
}

/** Returns whether a file has moved; undefined if it has neither path. With two names it is under way. */
function hasMoved(deps: LifecycleDeps, from: string, to: string): boolean | undefined {
  const { disk } = deps;
  const [isHere, isThere] = [from, to].map((path) => exists(disk, deps.allowed(path)));
  if (isHere && isThere) return from !== to && isOneFile(disk, from, to);
  return isHere || isThere ? isThere : undefined;
}

/** Returns whether a relocation has changed anything: the header is rewritten first, and then the file is moved. */
function hasRelocated(deps: LifecycleDeps, { from, to, cwd, header }: StepOf<"relocate">): boolean | undefined {
  const moved = hasMoved(deps, from, to);
  if (moved !== false) return moved;
  return readHeader(deps.disk, from)?.cwd === cwd && readHeaderText(deps, from) !== header;
}

/** Returns the step of a deletion to our own trash with its item. */
function trashedAs(deps: LifecycleDeps, { id, sessionId }: Operation, step: StepOf<"trash">) {
  const own = findOwnItem(deps, id) ?? step.item;
  if (own !== undefined && isInTrash(deps.disk, own)) return { ...step, item: own };
  if (exists(deps.disk, deps.allowed(step.from))) return false;
  const item = findItemFrom(deps, step.from, sessionId);
  return item === undefined ? undefined : { ...step, item };
}

/** Returns the folder of a container, even if an interrupted swap left it under another name; else the path itself. */
export function findContainerFolder({ disk }: LifecycleDeps, path: string): string {
  return isContainerName(path) ? resolveContainerFolder(disk, path) : path;
}

/** Returns the inode of a session file, or of the header of a container; undefined if it is missing. */
export function findInode(deps: LifecycleDeps, path: string): number | undefined {
  return inodeOf(deps, path, findContainerFolder(deps, path));
}

function inodeOf({ disk }: LifecycleDeps, session: string, path: string): number | undefined {
  return getInfo(disk, isContainerName(session) ? headerFile(path) : path)?.inode;
}

/** Returns the backup that a repair made of the session file with an inode. */
function backupWith(deps: LifecycleDeps, path: string, inode: number): string | undefined {
  return listBackups(deps.disk, path).find((backup) => inodeOf(deps, path, backup.path) === inode)?.path;
}
