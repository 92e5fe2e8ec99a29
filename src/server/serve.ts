/** The life of the process: the session at start, serving, the orderly end. */

import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { Failure } from "../core/failure.ts";
import { draftOf } from "../core/format/entry.ts";
import { type Env, timestamp } from "../core/ports/env.ts";
import type { Catalog } from "../core/search/listing.ts";
import type { Session } from "../core/session/session.ts";
import { sessionName, Workspace } from "../core/session/workspace.ts";
import type { ServerFacts } from "../handlers/shared/command.ts";
import { commandNames } from "../handlers/shared/find.ts";
import { type ConfinedDisk, confinedDisk, isBelow, realPathOf } from "../storage/fs/confined-disk.ts";
import { containedDisk } from "../storage/fs/contained-disk.ts";
import { type Disk, isErrno } from "../storage/fs/disk.ts";
import { findPlaces, type Places, settingsFiles, type Variables } from "../storage/fs/paths.ts";
import { desktopTrash } from "../storage/lifecycle/desktop-trash.ts";
import { commonFolder, type Locks, makeLocks } from "../storage/locks/locks.ts";
import { confinesOf, makeStores } from "../storage/stores.ts";
import { Connection } from "./connection/connection.ts";
import { ofTheDisk } from "./connection/dialect.ts";
import type { Settings } from "./settings.ts";

export interface World {
  readonly input: Readable;
  readonly output: Writable;
  readonly env: Env;
  readonly disk: Disk;
  readonly variables: Variables;
  readonly cwd: string;
  readonly version: string;
  /** One sentence for a person, on stderr. */
  readonly say: (sentence: string) => void;
  /** Content of a settings file, or undefined. */
  readonly settingsFile: (path: string, disk?: Disk) => unknown;
  /** Bytes beyond which replies wait in a file; by default as much as is well held in memory. */
  readonly heldReplyBytes?: number;
  /** What keeps other writers out; by default what the system offers. */
  readonly locks?: Locks;
}

export interface Service {
  /** Exit status, when everything is over. */
  readonly done: Promise<number>;
  /** Ends in order: what was received is answered and made durable. */
  stop(): void;
  /** What is found without the wire. */
  readonly catalog: Catalog;
}

/** How long the host may take to close its end after `shutdown` was answered. */
const AFTER_SHUTDOWN = 1000;

export function serve(settings: Settings, world: World): Service {
  const places = findPlaces(world.variables, settings.sessionDir, (file) => world.settingsFile(file));
  const confined = settings.allowedPaths && confine(settings.allowedPaths, places, world);
  const disk = confined ?? containedDisk(world.disk);
  const stores = makeStores({
    disk,
    env: world.env,
    places,
    durability: settings.durability,
    locks:
      world.locks ??
      makeLocks({
        // Whose a folder for temporary files is, its own path tells.
        disk: confined ? { ...confined, realPath: (path) => world.disk.realPath(path) } : disk,
        stateFolder: places.state,
        client: `pi-session-server ${world.version}`,
        now: () => timestamp(world.env),
        // SQLite opens its files by their paths.
        ...(confined ? { sqlite: () => undefined } : {}),
      }),
    cwd: world.cwd,
    kind: settings.inMemory ? "memory" : settings.store,
    readOnly: settings.readOnly,
    // Another program would follow the path once more.
    desktopTrash: confined ? undefined : desktopTrash(disk, world.variables),
    demandAllowed: confined?.demand,
    sharedState: confined?.hasState,
  });
  const workspace = new Workspace(stores, world.env, world.cwd, (session) => setUp(session, settings));
  const makeDocument = async (): Promise<object> => {
    const { openRpcDocument } = await import("./openrpc.ts");
    const { declarations } = await import("../handlers/shared/declarations.ts");
    return openRpcDocument(declarations, world.version);
  };
  let document: Promise<object> | undefined;
  const server: ServerFacts = {
    name: "pi-session-server",
    version: world.version,
    framings: ["lines", "headers"],
    dialects: ["jsonrpc", "pi"],
    limits: { maxMessageBytes: settings.maxMessageBytes },
    commands: commandNames,
    piSettings(cwd) {
      const [own, ...ofProject] = settingsFiles(world.variables, cwd);
      // A session says itself which its working directory is.
      return [world.settingsFile(own), ...ofProject.map((file) => world.settingsFile(file, disk))];
    },
    discover() {
      document ??= makeDocument();
      return document;
    },
  };
  const connection = new Connection({
    input: world.input,
    output: world.output,
    workspace,
    server,
    framing: settings.framing,
    dialect: settings.dialect,
    events: settings.events,
    maxMessageBytes: settings.maxMessageBytes,
    hookTimeout: settings.hookTimeout,
    heldReplyBytes: world.heldReplyBytes,
    disk: world.disk,
    // The system's own folder may lie in memory, and is for a state folder that cannot be written.
    spoolFolders: [places.state, tmpdir()],
  });
  const done = live(connection, workspace, settings, world).finally(() => confined?.release());
  return { done, stop: () => connection.stop(), catalog: stores.catalog };
}

/** Returns the disk that reaches the session folders, those that are allowed and our own, and nothing else. */
function confine(allowed: readonly string[], places: Places, world: World): ConfinedDisk & { hasState: boolean } {
  const { given, own } = confinesOf(places, allowed);
  const disk = confinedDisk(world.disk, {
    given,
    // The kernel tells who is alive and who has a lock; the project we were started in has settings.
    own: [...own, commonFolder(), "/proc", join(world.cwd, ".pi")],
  });
  if (!disk.isWalked)
    world.say(
      "This system has no paths that begin in an open folder: a link that is put in the place of a folder while that is used can lead out of the allowed ones.",
    );
  const state = realPathOf(world.disk, places.state);
  const hasState = given.some((folder) => isBelow(realPathOf(world.disk, folder), state));
  return { ...disk, hasState };
}

async function live(connection: Connection, workspace: Workspace, settings: Settings, world: World): Promise<number> {
  let hostGone = false;
  world.output.on("error", () => {
    // Nobody reads any more; what was received is still made durable.
    hostGone = true;
    connection.stop();
  });
  try {
    await openFirst(workspace, settings);
  } catch (error) {
    const failure = isErrno(error) ? ofTheDisk(error) : error;
    if (!(failure instanceof Failure)) throw error;
    workspace.none(failure);
    world.say(failure.message);
  }
  void connection.shutDownRequested().then(() => {
    // An editor sends `exit` or closes our stdin now; a host that does neither is not kept waiting for.
    setTimeout(() => connection.stop(), AFTER_SHUTDOWN).unref();
  });
  await connection.serve();
  try {
    await workspace.close();
  } catch (error) {
    world.say((error as Error).message);
    return 1;
  }
  return hostGone ? 1 : 0;
}

/** Opens or makes the session the command line asks for. Throws the failure that leaves us without one. */
async function openFirst(workspace: Workspace, settings: Settings): Promise<void> {
  const { session, fork, sessionId, name } = settings;
  const { stores } = workspace;
  let first: Session;
  if (fork !== undefined) {
    const source = workspace.open(where(workspace, fork));
    try {
      first = await workspace.fork(source, source.tree.leaf, { id: sessionId });
    } finally {
      source.close();
    }
    if (name !== undefined && !first.log.readOnly) {
      first.append([draftOf("session_info", { name: sessionName(name) })]);
      await first.commit();
    }
  } else if (session !== undefined) {
    const named = where(workspace, session);
    const isNew = named.sessionPath !== undefined && !stores.holds(named.sessionPath);
    first = isNew ? workspace.create({ file: named.sessionPath, id: sessionId, name }) : workspace.open(named);
  } else {
    const latest = settings.continueLatest ? stores.latest(workspace.cwd) : undefined;
    first = latest === undefined ? workspace.create({ id: sessionId, name }) : workspace.open({ sessionPath: latest });
  }
  await workspace.replace(first);
  if (settings.asPi) workspace.prepareFolder(first);
}

/** What looks like a path is one; anything else is an id. */
function where(workspace: Workspace, given: string): { sessionPath?: string; sessionId?: string } {
  const path = /[/\\]|\.(jsonl|v2|sqlite)$/.test(given) || isFile(workspace, given);
  return path ? { sessionPath: given } : { sessionId: given };
}

/** Whether there is a file of that name which may be named. */
function isFile({ stores }: Workspace, given: string): boolean {
  try {
    return stores.exists(stores.absolute(given));
  } catch (error) {
    if (error instanceof Failure) return false;
    throw error;
  }
}

/** A new session begins with the model and level of the command line. */
function setUp(session: Session, settings: Settings): void {
  if (session.log.readOnly) return;
  const { provider, model, thinking } = settings;
  if (provider !== undefined && model !== undefined)
    session.append([draftOf("model_change", { provider, modelId: model })]);
  if (thinking !== undefined) session.append([draftOf("thinking_level_change", { thinkingLevel: thinking })]);
}
