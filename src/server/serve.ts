/** The life of the process: the session at start, serving, the orderly end. */

import type { Readable, Writable } from "node:stream";
import { draftOf } from "../core/entry.ts";
import { type Env, timestamp } from "../core/env.ts";
import { Failure } from "../core/failure.ts";
import type { Catalog } from "../core/finding.ts";
import type { Session } from "../core/session.ts";
import type { Disk } from "../core/store/disk.ts";
import { desktopTrash } from "../core/store/lifecycle/desktop-trash.ts";
import { type Locks, makeLocks } from "../core/store/lock.ts";
import { findPlaces, settingsFiles, type Variables } from "../core/store/paths.ts";
import { makeStores } from "../core/store/stores.ts";
import { sessionName, Workspace } from "../core/workspace.ts";
import type { ServerFacts } from "../handlers/command.ts";
import { commandNames } from "../handlers/find.ts";
import type { Settings } from "./cli.ts";
import { Connection } from "./connection.ts";

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
  readonly settingsFile: (path: string) => unknown;
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
  const places = findPlaces(world.variables, settings.sessionDir, world.settingsFile);
  const stores = makeStores({
    disk: world.disk,
    env: world.env,
    places,
    durability: settings.durability,
    locks:
      world.locks ??
      makeLocks({
        disk: world.disk,
        stateFolder: places.state,
        client: `pi-session-server ${world.version}`,
        now: () => timestamp(world.env),
      }),
    cwd: world.cwd,
    kind: settings.inMemory ? "memory" : settings.store,
    readOnly: settings.readOnly,
    desktopTrash: desktopTrash(world.disk, world.variables),
    allowed: settings.allowedPaths,
  });
  const workspace = new Workspace(stores, world.env, world.cwd, (session) => setUp(session, settings));
  const makeDocument = async (): Promise<object> => {
    const { openRpcDocument } = await import("./openrpc.ts");
    const { declarations } = await import("../handlers/declarations.ts");
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
    piSettings: (cwd) => settingsFiles(world.variables, cwd).map(world.settingsFile),
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
  });
  return { done: live(connection, workspace, settings, world), stop: () => connection.stop(), catalog: stores.catalog };
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
    if (!(error instanceof Failure)) throw error;
    workspace.none(error);
    world.say(error.message);
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
  const path = /[/\\]|\.(jsonl|v2|sqlite)$/.test(given) || workspace.stores.exists(workspace.stores.absolute(given));
  return path ? { sessionPath: given } : { sessionId: given };
}

/** A new session begins with the model and level of the command line. */
function setUp(session: Session, settings: Settings): void {
  if (session.log.readOnly) return;
  const { provider, model, thinking } = settings;
  if (provider !== undefined && model !== undefined)
    session.append([draftOf("model_change", { provider, modelId: model })]);
  if (thinking !== undefined) session.append([draftOf("thinking_level_change", { thinkingLevel: thinking })]);
}
