/** Process lifecycle: opens the initial session, serves, shuts down. */

import type { Writable } from "node:stream";
import type { Model } from "../core/context/context.ts";
import { isErrno } from "../core/errno.ts";
import { Failure } from "../core/failure.ts";
import { makeDraft } from "../core/format/entry.ts";
import type { WantedSession } from "../core/ports/stores.ts";
import { isPath } from "../core/search/named.ts";
import type { Session } from "../core/session/session.ts";
import type { NewSession, Workspace } from "../core/session/workspace.ts";
import { toDiskFailure } from "./connection/dialect.ts";
import type { Connection } from "./host-connection.ts";
import type { ServerSettings } from "./settings.ts";

/** Milliseconds that the host has to close its end after the reply to `shutdown`. */
const AFTER_SHUTDOWN = 1000;

/** Opens the initial session, serves, and shuts down cleanly. Resolves to the exit status. */
export async function serveUntilEnd(
  connection: Connection,
  workspace: Workspace,
  settings: ServerSettings,
  world: { readonly output: Writable; readonly printError: (sentence: string) => void },
): Promise<number> {
  // Without a reader of the output, received writes are still made durable.
  world.output.on("error", () => connection.stop());
  try {
    await openFirst(workspace, settings);
  } catch (error) {
    const failure = isErrno(error) ? toDiskFailure(error) : error;
    if (!(failure instanceof Failure)) throw error;
    workspace.none(failure);
    world.printError(failure.message);
  }
  void connection.shutDownRequested().then(() => {
    // An editor now sends `exit` or closes our stdin; other hosts are not waited for.
    setTimeout(() => connection.stop(), AFTER_SHUTDOWN).unref();
  });
  await connection.serve();
  try {
    await workspace.close();
  } catch (error) {
    world.printError((error as Error).message);
    return 1;
  } finally {
    connection.leaveOthers();
  }
  return world.output.errored || connection.isUnheard ? 1 : 0;
}

/** Opens or makes the session of the command line. Throws the failure that leaves the server without one. */
async function openFirst(workspace: Workspace, settings: ServerSettings): Promise<void> {
  const { session, fork, sessionId, name } = settings;
  let first: Session;
  if (fork !== undefined) {
    const source = await workspace.opened(parseWanted(workspace, fork));
    try {
      first = await workspace.fork(source, source.tree.leaf, { id: sessionId, name });
    } finally {
      source.close();
    }
  } else if (session !== undefined) {
    const named = parseWanted(workspace, session);
    first = await openOrCreate(workspace, named, { file: named.sessionPath, id: sessionId, name });
  } else {
    const { continueLatest } = settings;
    const latest = continueLatest ? await openLatest(workspace, continueLatest === "top") : undefined;
    first = latest ?? (await findOrCreate(workspace, sessionId, { id: sessionId, name }));
  }
  await workspace.replace(first);
  if (settings.asPi) workspace.prepareFolder(first);
}

/** Opens the latest session of this directory that is not deleted on another machine. */
async function openLatest(workspace: Workspace, isTop: boolean): Promise<Session | undefined> {
  const { stores, cwd } = workspace;
  for (let before: string | undefined; ; ) {
    const sessionPath = stores.latest(cwd, isTop);
    // The file of a deleted session goes to the trash, if possible.
    if (sessionPath === undefined || sessionPath === before) return undefined;
    try {
      return await workspace.opened({ sessionPath });
    } catch (error) {
      if (!isDeletion(error)) throw error;
      before = sessionPath;
    }
  }
}

/** Returns whether a session is missing because it was deleted, so that no new one replaces it. */
function isDeletion(error: unknown): boolean {
  return error instanceof Failure && error.details.deleted === true;
}

/** Opens the named session, or makes one at a path without any, here or on other machines. */
async function openOrCreate(workspace: Workspace, named: WantedSession, wanted: NewSession): Promise<Session> {
  const { stores } = workspace;
  const mayBeNew = named.sessionPath !== undefined && !stores.holds(named.sessionPath);
  if (mayBeNew && !stores.arrive) return workspace.create(wanted);
  try {
    return await workspace.opened(named);
  } catch (error) {
    if (!mayBeNew || !(error instanceof Failure) || error.name !== "session_not_found" || isDeletion(error))
      throw error;
    return workspace.create(wanted);
  }
}

/**
 * Opens the session of this directory with an id, or makes one. If machines share their sessions, a session with the id
 * is opened from any of them: a program started elsewhere with the same arguments continues it.
 */
async function findOrCreate(workspace: Workspace, sessionId: string | undefined, wanted: NewSession): Promise<Session> {
  const make = (): Session => workspace.create({ ...wanted, isOfDirectory: true });
  if (sessionId === undefined) return make();
  if (!workspace.stores.arrive) {
    const find = (): string | undefined => workspace.stores.findOf(workspace.cwd, sessionId);
    let sessionPath = find();
    if (sessionPath === undefined)
      try {
        return make();
      } catch (error) {
        // Another process may have made it since the look.
        if (error instanceof Failure && error.name === "already_exists") sessionPath = find();
        if (sessionPath === undefined) throw error;
      }
    return workspace.opened({ sessionPath });
  }
  try {
    return await workspace.opened({ sessionId, isWhole: true });
  } catch (error) {
    if (!(error instanceof Failure) || error.name !== "session_not_found" || isDeletion(error)) throw error;
    return make();
  }
}

/**
 * Parses a session argument: a separator, a session suffix or an existing file makes it a path, otherwise it is an id
 * or a name.
 */
function parseWanted(workspace: Workspace, given: string): WantedSession {
  if (isPath(given) || isFile(workspace, given)) return { sessionPath: given };
  return { sessionId: given, mayBeName: true };
}

function isFile({ stores }: Workspace, given: string): boolean {
  try {
    return stores.exists(stores.absolute(given));
  } catch (error) {
    if (error instanceof Failure) return false;
    throw error;
  }
}

/** Appends the model and the thinking level of the command line to a new session. */
export function setUpSession(session: Session, settings: ServerSettings): void {
  if (session.log.readOnly) return;
  const { thinking } = settings;
  const model = getCommandLineModel(settings);
  if (model) session.append([makeDraft("model_change", { provider: model.provider, modelId: model.id })]);
  if (thinking !== undefined) session.append([makeDraft("thinking_level_change", { thinkingLevel: thinking })]);
}

/** Returns the model of the command line, which takes both of its options. */
export function getCommandLineModel({ provider, model }: ServerSettings): Model | undefined {
  return provider === undefined || model === undefined ? undefined : { provider, id: model };
}
