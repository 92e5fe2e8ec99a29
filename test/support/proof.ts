/** Common parts of the proofs: servers that can be killed, and an independent reader of session files. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { isDeepStrictEqual } from "node:util";
import { expect, onTestFinished } from "vitest";
import { parseArguments } from "../../src/cli/options.ts";
import { LEAF_MARKER } from "../../src/core/format/node-reader.ts";
import type { FleetAdmin } from "../../src/core/ports/fleet-admin.ts";
import { type Service, serve, type World } from "../../src/server/main.ts";
import type { ConnectedFleet } from "../../src/storage/fleet-module.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { wrapped } from "./disturbed.ts";
import { testEnv } from "./env.ts";
import { type Framing, type Json, type Place, spawnServer, temporaryPlace, Wire } from "./server.ts";

// --- servers that die ------------------------------------------------------------------------------------------

/** One server after the other in the same place; each can end in order or be killed. */
export interface Lives {
  readonly place: Place;
  start(args: string[]): Promise<Wire>;
  /** Ends the input and waits until the server has left everything in order. */
  end(): Promise<void>;
  /** Nothing the server does after this has any effect. */
  kill(): Promise<void>;
}

export interface HereLivesOptions {
  readonly place?: Place;
  readonly disk?: Disk;
  readonly framing?: Framing;
  readonly seed?: number;
  /** Reads a settings file. */
  readonly settings?: (path: string) => unknown;
  readonly fleet?: ConnectedFleet;
  readonly agentLaunch?: World["agentLaunch"];
}

const lives = new Map<string, number>();

/** Counts the servers in a place, so that none of them makes the ids of another again. */
function nextLife({ home }: Place): number {
  const life = lives.get(home) ?? 0;
  lives.set(home, life + 1);
  return life;
}

/** Servers in this process. A killed one is cut off from its disk. */
export class HereLives implements Lives {
  readonly place: Place;
  readonly said: string[] = [];
  /** Exit status of the present server. */
  done: Promise<number> = Promise.resolve(0);
  private readonly options: HereLivesOptions;
  private wire: Wire | undefined;
  /** Cuts the present server off from its disk: no operation has any effect. */
  private cutOff: () => void = () => {};
  private service: Service | undefined;

  constructor(options: HereLivesOptions = {}) {
    this.options = options;
    this.place = options.place ?? temporaryPlace();
    onTestFinished(() => this.end());
  }

  async start(args: string[] = []): Promise<Wire> {
    const { disk = realDisk, framing = "lines", seed = 1, settings = () => undefined } = this.options;
    const input = new PassThrough();
    const output = new PassThrough();
    let isCutOff = false;
    this.cutOff = () => {
      isCutOff = true;
    };
    const service = serve(parseArguments(args), {
      input,
      output,
      env: testEnv(seed * 1000 + nextLife(this.place)),
      disk: wrapped(disk, (operate) => {
        if (isCutOff) throw Object.assign(new Error("the process is gone"), { code: "EIO" });
        return operate();
      }),
      variables: this.place.variables,
      cwd: this.place.cwd,
      version: "0.0.0-test",
      printError: (sentence) => this.said.push(sentence),
      settingsFile: settings,
      // Killed servers stay in this process; a lock of theirs would outlive them.
      locks: noLocks,
      fleet: this.options.fleet,
      agentLaunch: this.options.agentLaunch,
    });
    this.service = service;
    this.done = service.done.finally(() => output.end());
    this.wire = new Wire(input, output, framing);
    return this.wire;
  }

  async end(): Promise<void> {
    if (!this.wire) return;
    const { wire } = this;
    this.wire = undefined;
    wire.end();
    wire.output.resume();
    await this.done;
  }

  /** Returns the administration of the present server's fleet. */
  getAdmin(): FleetAdmin {
    return this.service?.fleet as FleetAdmin;
  }

  /** Cuts it off from its readers and ends its input, so that it does not stay and look at its files. */
  async kill(): Promise<void> {
    this.cutOff();
    this.done.catch(() => {});
    this.wire?.end();
    this.wire?.output.resume();
    this.wire = undefined;
  }
}

/** The built program, killed by SIGKILL. */
export class SpawnedLives implements Lives {
  readonly place = temporaryPlace();
  private server: ReturnType<typeof spawnServer> | undefined;

  async start(args: string[]): Promise<Wire> {
    this.server = spawnServer(args, "lines", this.place);
    return this.server;
  }

  get pid(): number {
    return this.server?.process.pid as number;
  }

  async end(): Promise<void> {
    await this.server?.finish();
  }

  async kill(): Promise<void> {
    this.server?.process.kill("SIGKILL");
    await this.server?.exit;
  }
}

// --- session files, by a plain reader ---------------------------------------------------------------------------

/** Every line of a session file, as any program would read it: one JSON value a line, `type` first, whole lines. */
export function readPlainly(file: string, from = 0): Json[] {
  if (file.endsWith(".v2")) return shelves.v2.lines(file, from);
  return plainLines(readFileSync(file).subarray(from), file);
}

export function plainLines(bytes: Uint8Array, file = "the file"): Json[] {
  const text = Buffer.from(bytes).toString("utf8");
  if (text === "") return [];
  expect(text.endsWith("\n"), `${file} ends with a whole line`).toBe(true);
  return text
    .slice(0, -1)
    .split("\n")
    .map((line) => {
      if (!/^\{"(type|schema)":"/.test(line))
        expect.fail(`${file} has a line without type in front: ${line.slice(0, 200)}`);
      return JSON.parse(line);
    });
}

/** The layout of a backend's sessions on the disk, for an independent reader. Sizes only ever grow. */
export interface Shelf {
  /** Options of a server with this store. */
  readonly options: string[];
  size(session: string): number;
  /** The header and the entries that stand behind so many bytes. */
  lines(session: string, from?: number): Json[];
  /** Returns a state of the files; equal ones mean that no write happened. */
  look(session: string): string;
}

const look = (file: string): string => {
  const { size, mtimeMs } = statSync(file);
  return `${size} ${mtimeMs}`;
};

/** The header of a container of Store V2 and its segments, in order. */
export const partsOf = (container: string): string[] =>
  [
    "header.jsonl",
    ...readdirSync(join(container, "segments"))
      .sort()
      .map((name) => `segments/${name}`),
  ].map((name) => join(container, name));

export const shelves: Readonly<Record<"jsonl" | "v2", Shelf>> = {
  jsonl: { options: [], size: (file) => statSync(file).size, lines: readPlainly, look },
  v2: {
    options: ["--store", "v2"],
    size: (container) => partsOf(container).reduce((sum, file) => sum + statSync(file).size, 0),
    lines(container, from = 0) {
      const bytes = Buffer.concat(partsOf(container).map((file) => readFileSync(file)));
      return plainLines(bytes.subarray(from), container).map(({ payload, ...header }) => payload ?? header);
    },
    look: (container) =>
      readdirSync(container, { recursive: true, encoding: "utf8" })
        .map((name) => `${name} ${look(join(container, name))}`)
        .sort()
        .join("\n"),
  },
};

export function isMarker(entry: Json): boolean {
  return entry.type === "custom" && entry.customType === LEAF_MARKER;
}

/** Returns the entries of a session file that the server reports: without leaf markers that no entry continues. */
export function selectReported(lines: readonly Json[]): Json[] {
  const parents = new Set(lines.map(({ parentId }) => parentId));
  return lines.slice(1).filter((entry) => !isMarker(entry) || parents.has(entry.id));
}

/** All session files and containers below a folder, in the order of their names. */
export function sessionFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.v2$|\.jsonl$/.test(name) && !/\.v2\b.|\boperations\b/.test(name))
    .sort()
    .map((name) => join(folder, name));
}

/** Returns bytes and time of a file, or of a container's segments; equal ones mean that no write happened. */
export function imprint(session: string): { bytes: string; modified: number } {
  const files = session.endsWith(".v2") ? partsOf(session) : [session];
  return {
    bytes: files.map((file) => readFileSync(file, "latin1")).join(""),
    modified: Math.max(...files.map((file) => statSync(file).mtimeMs)),
  };
}

/** `expect(actual).toEqual(expected)`, quick where they are equal. */
export function same(actual: unknown, expected: unknown, what: string): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual, what).toEqual(expected);
}
