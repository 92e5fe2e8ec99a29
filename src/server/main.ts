/** Assembles a server from its settings: disk, locks, stores, workspace and connection. */

import { homedir, tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { type Modules, modules } from "../compose.ts";
import type { Catalog } from "../core/ports/catalog.ts";
import { type Env, makeTimestamp } from "../core/ports/env.ts";
import type { Stores } from "../core/ports/stores.ts";
import { Workspace } from "../core/session/workspace.ts";
import type { ServerFacts } from "../handlers/shared/command.ts";
import { commandNames } from "../handlers/shared/find.ts";
import { AddressError, type ConnectedFleet, NO_FLEET } from "../storage/fleet-module.ts";
import { type ConfinedDisk, confineDisk, getRealPath, isBelow } from "../storage/fs/confined-disk.ts";
import { containDisk } from "../storage/fs/contained-disk.ts";
import type { Disk } from "../storage/fs/disk.ts";
import { getInfo } from "../storage/fs/files.ts";
import { countOpenFiles } from "../storage/fs/open-files.ts";
import {
  findAgentRoots,
  findPaths,
  listSettingsFiles,
  type StoragePaths,
  type Variables,
} from "../storage/fs/paths.ts";
import { findAncestors } from "../storage/fs/processes.ts";
import { FileSpool } from "../storage/fs/spool.ts";
import { findDesktopTrash } from "../storage/lifecycle/desktop-trash.ts";
import { getCommonFolder } from "../storage/locks/claims.ts";
import type { Locks } from "../storage/locks/contract.ts";
import { makeLocks } from "../storage/locks/locks.ts";
import { getConfines, makeStores } from "../storage/stores.ts";
import type { AgentOptions, AgentSettings, AgentsModule } from "./agents-module.ts";
import { OpenLimit } from "./dispatch/open-limit.ts";
import type { SharingStart } from "./dispatch/sharing.ts";
import { Connection } from "./host-connection.ts";
import { getCommandLineModel, serveUntilEnd, setUpSession } from "./serve.ts";
import { type ServerSettings, SettingsError } from "./settings.ts";

/** Milliseconds before deferred work starts; the reply has been sent long before. */
const PUT_OFF_MS = 50;

export interface World {
  readonly input: Readable;
  readonly output: Writable;
  /** Returns whether the output can still have a reader. */
  readonly isHeard?: () => boolean;
  readonly env: Env;
  readonly disk: Disk;
  readonly variables: Variables;
  readonly cwd: string;
  readonly version: string;
  /** The command that this process runs, for others that find a session in use; missing for a server. */
  readonly command?: string;
  readonly printError: (sentence: string) => void;
  /** Reads a settings file; returns undefined when there is none. */
  readonly settingsFile: (path: string, disk?: Disk) => unknown;
  /** Bytes above which replies wait in a file; by default as the connection chooses. */
  readonly heldReplyBytes?: number;
  /** The limit of open sessions; by default that of this process. */
  readonly room?: OpenLimit;
  /** Overrides of how the agents in the settings are started and ended. */
  readonly agentLaunch?: Pick<AgentOptions, "spawn" | "patience">;
  /** The locks against other writers; by default those of the system. */
  readonly locks?: Locks;
  /** The shared database, which has the sessions, too. */
  readonly fleet?: ConnectedFleet;
  /** The optional modules; by default those of this build. */
  readonly modules?: Modules;
}

export interface Service {
  /** Exit status, when the server has ended. */
  readonly done: Promise<number>;
  stop(): void;
  /** The catalog, for uses that need no wire. */
  readonly catalog: Catalog;
  /** Sessions for completing the beginning of an id. */
  readonly offered: Stores["offered"];
  /** The hash that makes ids of ours from ids of other agents' sessions. */
  readonly sha256: Env["sha256"];
  /** Missing without a fleet. */
  readonly fleet: Stores["fleet"];
}

/** Starts a server. Throws SettingsError, and AddressError for the address of a fleet. */
export function serve(settings: ServerSettings, world: World): Service {
  const build = world.modules ?? modules;
  const agents = getAgents(settings, build);
  const { recall } = build;
  if (!recall && settings.dialect === "mcp")
    throw new SettingsError("This build has no recall. Leave out --dialect mcp.");
  const paths = findPaths(world.variables, settings.sessionDir, (file) => world.settingsFile(file));
  const confined = settings.allowedPaths && confine(settings.allowedPaths, paths, world);
  const disk = confined ?? containDisk(world.disk);
  const fleet = connectNamedFleet(settings, world, paths, build);
  const stores = makeStores({
    disk,
    env: world.env,
    paths,
    roots: findAgentRoots(world.variables),
    foreign: build.foreign,
    variables: world.variables,
    home: world.variables.HOME ?? homedir(),
    durability: settings.durability,
    locks:
      world.locks ??
      makeLocks({
        // The locks check the real path of the folder for temporary files. It may lead through folders that are not
        // allowed.
        disk: confined ? { ...confined, realPath: (path) => world.disk.realPath(path) } : disk,
        stateFolder: paths.state,
        client: getClientName(world),
        now: () => makeTimestamp(world.env),
        // SQLite opens its files by path, which is not confined.
        ...(confined ? { sqlite: () => undefined } : {}),
      }),
    cwd: world.cwd,
    kind: settings.inMemory ? "memory" : settings.store,
    readOnly: settings.readOnly,
    // Another program would follow the path again, unconfined.
    desktopTrash: confined ? undefined : findDesktopTrash(disk, world.variables),
    requireAllowed: confined?.requireInside,
    sharedState: confined?.hasState,
    onUnrecorded: (text) =>
      world.printError(
        `${text} That is saved, but the disk refused its record: undo does not know it once this process has ended.`,
      ),
    later: (work) => setTimeout(work, PUT_OFF_MS).unref(),
    fleet,
    complain: world.printError,
    leavesFleet: !fleet && Boolean(settings.fleet ?? world.variables.PI_FLEET_URL),
  });
  const endSweep = stores.fleet?.startSweep();
  const workspace = new Workspace(stores, world.env, world.cwd, (session) => setUpSession(session, settings));
  const sharing = prepareSharing(settings, world, disk, build);
  const { makeResumable } = build.foreign ?? {};
  let document: Promise<object> | undefined;
  const server: ServerFacts = {
    name: "pi-session-server",
    version: world.version,
    framings: ["lines", "headers"],
    dialects: ["jsonrpc", "pi", ...(agents ? ["acp"] : []), ...(recall ? ["mcp"] : [])],
    limits: { maxMessageBytes: settings.maxMessageBytes },
    commands: commandNames,
    asPi: settings.asPi,
    model: getCommandLineModel(settings),
    piSettings(cwd) {
      const [own, ...ofProject] = listSettingsFiles(world.variables, cwd);
      // A session names its own working directory, so its settings are read through the server's disk.
      return [world.settingsFile(own), ...ofProject.map((file) => world.settingsFile(file, disk))];
    },
    makeResumable: makeResumable && ((...of) => makeResumable(world.variables, ...of)),
    canJoin: (sessionPath) => sharing?.canJoin(sessionPath) === true,
    discover() {
      document ??= makeDocument(world.version);
      return document;
    },
  };
  const ended = async (): Promise<void> => {
    confined?.release();
    endSweep?.();
    const pendingCount = fleet?.outage ? (stores.fleet?.listPending().length ?? 0) : 0;
    if (pendingCount > 0)
      world.printError(
        `${pendingCount === 1 ? "A session has" : `${pendingCount} sessions have`} entries not yet uploaded. Run pi-session-server fleet push, or open ${pendingCount === 1 ? "it" : "them"}.`,
      );
    await fleet?.close();
  };
  const { catalog, offered } = stores;
  const found = { catalog, offered, fleet: stores.fleet, sha256: world.env.sha256 };
  const agent = settings.agent && makeAgentOptions(settings.agent, settings, world);
  const isEditor = settings.dialect === "acp";
  const facts = { version: world.version, readOnly: settings.readOnly };
  const connection = new Connection({
    input: world.input,
    output: world.output,
    workspace,
    server,
    settings,
    isHeard: world.isHeard,
    heldReplyBytes: world.heldReplyBytes,
    room: world.room ?? new OpenLimit(undefined, undefined, undefined, countOpenFiles(world.disk)),
    faces: {
      acp: agents && ((wire) => agents.startEditorFace(wire, facts, isEditor ? agent : undefined)),
      mcp:
        recall &&
        ((wire) =>
          recall.startRecallFace(wire, { ...settings.recall, ...makeRecallPlace(world), version: world.version })),
    },
    startPi: agents && agent && !isEditor ? (wire) => agents.startPiBehind(wire, agent) : undefined,
    // The system's temporary folder may be in memory. It is used only if the state folder cannot be written.
    sharing,
    spool: new FileSpool(world.disk, [paths.state, tmpdir()], () => world.env.now()),
  });
  const done = serveUntilEnd(connection, workspace, settings, world).finally(ended);
  return { ...found, done, stop: () => connection.stop(true) };
}

/** Returns the machine, the project and the person, for agents that ask about past sessions. */
export function makeRecallPlace({ disk, variables, cwd }: Pick<World, "disk" | "variables" | "cwd">) {
  return {
    ...{ variables, cwd },
    realPath: (path: string) => disk.realPath(path),
    findAncestors: () => findAncestors(disk),
  };
}

/** Prepares sharing with other processes, if there can be any, this build has it and the user wants it. */
function prepareSharing(settings: ServerSettings, world: World, disk: Disk, build: Modules): SharingStart | undefined {
  const { attach, inMemory, readOnly, durability, holderTimeout } = settings;
  if (attach === "off" || inMemory || readOnly) return undefined;
  const { env, version, variables, disk: ownDisk } = world;
  return build.attach?.makeSharing({
    disk,
    ownDisk,
    variables,
    env,
    version,
    durability,
    holderTimeout,
  });
}

/** Returns the module with agents, if this build has it. Throws SettingsError if the settings need it. */
function getAgents({ agent, dialect }: ServerSettings, { agents }: Modules): AgentsModule | undefined {
  if (!agents && (agent || dialect === "acp"))
    throw new SettingsError(`This build has no agents. Leave out ${agent ? "--agent" : "--dialect acp"}.`);
  return agents;
}

/** Returns the options to start the agent behind this server. It works in the session's directory if that exists. */
function makeAgentOptions(agent: AgentSettings, settings: ServerSettings, world: World): AgentOptions {
  return {
    ...agent,
    variables: world.variables,
    maxLineBytes: settings.maxMessageBytes,
    ...world.agentLaunch,
    printError: world.printError,
    cwdFor: (session) => {
      const { cwd = "" } = session ?? {};
      const isThere = isAbsolute(cwd) && getInfo(world.disk, cwd)?.kind === "folder";
      return isThere ? cwd : world.cwd;
    },
  };
}

/** Connects to the fleet of the settings. Read-only and in-memory servers have none. Throws AddressError. */
function connectNamedFleet(
  settings: ServerSettings,
  world: World,
  paths: StoragePaths,
  build: Modules,
): ConnectedFleet | undefined {
  const text = settings.fleet ?? world.variables.PI_FLEET_URL;
  if (world.fleet || !text || settings.inMemory || settings.readOnly) return world.fleet;
  if (!build.fleet) throw new AddressError(NO_FLEET);
  const search = settings.fleetSearch ?? world.variables.PI_FLEET_SEARCH;
  return build.fleet.connectFleetTo(
    { text, isSeen: settings.fleet !== undefined, whenAway: settings.fleetAway, search },
    {
      ...{ disk: world.disk, env: world.env, stateFolder: paths.state },
      client: getClientName(world),
    },
  );
}

function getClientName({ version, command }: World): string {
  const name = `pi-session-server ${version}`;
  return command === undefined ? name : `${name} (${command})`;
}

async function makeDocument(version: string): Promise<object> {
  const { makeOpenRpcDocument } = await import("./openrpc.ts");
  const { declarations } = await import("../handlers/shared/declarations.ts");
  return makeOpenRpcDocument(declarations, version);
}

/** Returns a disk that reaches only the session folders, the allowed ones and our own. */
function confine(allowed: readonly string[], paths: StoragePaths, world: World): ConfinedDisk & { hasState: boolean } {
  const { given, own } = getConfines(paths, allowed);
  const disk = confineDisk(world.disk, {
    given,
    // /proc has the living processes and the owners of locks; the project of our start has settings.
    own: [...own, getCommonFolder(), "/proc", join(world.cwd, ".pi")],
  });
  if (!disk.isWalked)
    world.printError(
      "This system cannot open paths relative to an open folder: a link that replaces a folder while it is used can lead outside the allowed ones.",
    );
  const state = getRealPath(world.disk, paths.state);
  const hasState = given.some((folder) => isBelow(getRealPath(world.disk, folder), state));
  return { ...disk, hasState };
}
