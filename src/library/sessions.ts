/** The sessions that managers hold: making, opening, lending and closing them. They write only on request. */

import { Failure } from "../core/failure.ts";
import { type SessionHeader as CoreHeader, type Draft, makeValueDraft, SESSION_ID } from "../core/format/entry.ts";
import { concat, toBytes } from "../core/json/json.ts";
import { type Beginning, type Content, type Log, readContent, type Store } from "../core/ports/store.ts";
import type { LeafMemory, SessionStores } from "../core/ports/stores.ts";
import { planCopy } from "../core/session/fork.ts";
import { Session } from "../core/session/session.ts";
import { makeBeginning, readForkedLines } from "../core/session/workspace.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { migrateSessionEntries } from "./entries.ts";
import { absolutePath, env, memoryStore, useAndClose, wholeLines } from "./here.ts";
import type { ContextEditEntry, FileEntry, NewSessionOptions, SessionEntry, SessionHeader } from "./types.ts";

/** Returns the JSON text of a value that has one. */
export function textOf(value: unknown): Uint8Array | undefined {
  const text: string | undefined = JSON.stringify(value);
  return text === undefined ? undefined : toBytes(text);
}

export function beginningFor(cwd: string, { id, parentSession }: NewSessionOptions, file?: string): Beginning {
  if (id !== undefined) assertValidSessionId(id);
  return makeBeginning(env, { cwd: absolutePath(cwd), id, parentSession, file });
}

/** Throws invalid_id unless a session may have this id. */
export function assertValidSessionId(id: string): void {
  if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
}

function sessionOn(log: Log, leaves?: LeafMemory): Session {
  return new Session(log, env, leaves, false);
}

/** Makes a session without entries. Throws already_exists when there is something at its path. */
export function newSession(stores: SessionStores, beginning: Beginning): Session {
  const session = sessionOn(stores.forNew.create(beginning));
  if (session.file !== null && stores.exists(session.file))
    throw new Failure("already_exists", `There is a file at ${session.file} already. Open it, or choose another id.`, {
      sessionPath: session.file,
    });
  return session;
}

/** Opens the session of a file, at the leaf that the server recorded for it. */
export function openSession(stores: SessionStores, file: string): Session {
  return sessionOn(stores.open(file), stores.leaves);
}

/** Makes a session with content from the start; one that is `deferred` gets its file later. */
export function sessionWith(store: Store, beginning: Beginning, content: Content, deferred: boolean): Session {
  if (!deferred && store.publishNow) return sessionOn(store.publishNow(beginning, content));
  const log = store.create(beginning);
  log.append(wholeLines(concat([...readContent(content)])), { defer: deferred });
  return sessionOn(log);
}

/** Makes a session with all entries of a file, and its leaf; `make` begins it. */
export function copyOf(stores: SessionStores, file: string, into: Store, make: (source: Log) => Beginning): Session {
  return useAndClose(openSession(stores, file), (source) => {
    const copy = sessionWith(into, make(source.log), readForkedLines(source, planCopy(source.tree)), false);
    copy.moveLeaf(source.leafId === null ? ROOT : copy.log.nodes.position(source.leafId));
    return copy;
  });
}

/** Makes a session in memory that holds everything of a file's. */
export function copyInMemory(stores: SessionStores, file: string): Session {
  return copyOf(stores, file, memoryStore(), ({ headerLine, header }) => ({ headerLine, header }));
}

/** Makes a session in memory from entries, with the header among them if there is one. */
export function sessionInMemory(beginning: Beginning, entries: readonly FileEntry[]): Session {
  const given = entries.map((entry) => ({ ...entry }));
  const header = given.find((entry) => entry.type === "session");
  if (header) migrateSessionEntries(given);
  const own = given.filter((entry) => entry !== header && entry.type !== "session") as SessionEntry[];
  if (own.some(({ type, id }) => typeof type !== "string" || typeof id !== "string"))
    throw new Failure("invalid_entry", "Entries have a type and an id. Pass the header too to have old ones migrated.");
  const headerLine = textOf(header) as Uint8Array;
  const log = memoryStore().create(header ? { header: header as CoreHeader & SessionHeader, headerLine } : beginning);
  log.append(own.map((entry) => textOf(entry) as Uint8Array));
  return sessionOn(log);
}

/** Returns the position of an entry. Throws entry_not_found. */
export function positionOf(session: Session, id: string): number {
  const position = session.find(id);
  if (position < 0) throw new Failure("entry_not_found", `Entry ${id} not found`, { entryId: id });
  return position;
}

/** Returns the draft of a context edit. Throws entry_not_found and invalid_entry. */
export function contextEdit(session: Session, targetId: string, replacement: ContextEditEntry["replacement"]): Draft {
  if (replacement !== null && typeof replacement?.content !== "string" && !Array.isArray(replacement?.content))
    throw new Failure("invalid_entry", "A replacement is null, or its content is a string or a list of blocks.");
  const target = positionOf(session, targetId);
  const { tree, log } = session;
  const fault = (sentence: string): Failure => new Failure("invalid_entry", sentence, { entryId: targetId });
  if (!tree.isAncestor(target, tree.leaf)) throw fault(`Entry ${targetId} is not on the path to the leaf.`);
  const isCustom = log.nodes.isType(target, "custom_message");
  const role = log.nodes.role(target);
  if (!isCustom && !["user", "assistant", "toolResult"].includes(role))
    throw fault(`Entry ${targetId} has no content that the model sees.`);
  const inBlocks = !isCustom && role !== "user" && typeof replacement?.content === "string";
  const content = inBlocks ? [{ type: "text", text: replacement.content }] : replacement?.content;
  return makeValueDraft("context_edit", { targetId, replacement: replacement && { ...replacement, content } });
}

/** Milliseconds without an append after which other programs may write to the file. */
const WRITING = 1000;

/** Closes sessions of managers that nothing refers to any more, because Pi's managers are never closed. */
const forgotten = new FinalizationRegistry<HeldSession>((held) => held.close());

export class HeldSession {
  /** Those with the lock of their session, which each has files open for. */
  private static readonly lending = new Set<HeldSession>();
  current: Session;
  private timer: NodeJS.Timeout | undefined;
  private lentAt = Number.NaN;

  /** Holds a session for a manager, which it outlives by the time that the collector takes. */
  constructor(manager: object, session: Session) {
    this.current = session;
    forgotten.register(manager, this);
  }

  replace(session: Session): void {
    this.current.close();
    this.current = session;
  }

  /** Lets other programs write when nothing was appended for a while; one call in a millisecond counts. */
  lendSoon(now: number): void {
    if (now === this.lentAt || !this.current.log.persisted) return;
    this.lentAt = now;
    HeldSession.lending.add(this);
    if (this.timer) this.timer.refresh();
    else this.timer = setTimeout(() => this.lend(), WRITING).unref();
  }

  private lend(): void {
    HeldSession.lending.delete(this);
    this.current.log.lock.release();
  }

  /** Lets other programs write to all other sessions now, which closes files. Returns whether there were any. */
  lendOthers(): boolean {
    const others = [...HeldSession.lending].filter((held) => held !== this);
    for (const held of others) held.lend();
    return others.length > 0;
  }

  close(): void {
    clearTimeout(this.timer);
    HeldSession.lending.delete(this);
    this.current.close();
  }
}
