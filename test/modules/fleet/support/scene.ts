/**
 * Scenes: machines that work on one session of a fleet in memory. A step names the actor ("one" by default), the action and
 * its lines. `3` is a line of the chain, `7<3` another one that continues it, `7<` one that continues nothing; among lines
 * that are there, `@3` is a leaf marker at 3. `!name`: the step fails so, and `!name?`: it may be repeated.
 */

import { expect, test } from "vitest";
import { LEAF_MARKER } from "../../../../src/core/format/node-reader.ts";
import { toBytes } from "../../../../src/core/json/json.ts";
import type { FleetPushed } from "../../../../src/core/ports/fleet-admin.ts";
import type { Log } from "../../../../src/core/ports/store.ts";
import {
  listPendingElsewhere,
  listPendingUploads,
  type UploadPlace,
  uploadSession,
} from "../../../../src/modules/fleet/replica/uploads.ts";
import { POWER_CUTS } from "../../../support/disk.ts";
import { id, SESSION, userText } from "../../../support/lines.ts";
import { textsOf } from "../../../support/sessions.ts";
import { failed, followed, found, line, Machine, type MachineKind, type MachineOptions } from "./machine.ts";
import { type FleetFault, FleetTable, type MemoryFleet } from "./table-fleet.ts";
import { notesOn, placeOf } from "./unsent-lines.ts";

/** Uploads a machine's pending lines to its fleet, and names those that are pending for other fleets. */
export async function uploadAll(place: UploadPlace): Promise<FleetPushed[]> {
  const pushed: FleetPushed[] = [];
  for (const known of listPendingUploads(place)) pushed.push(await uploadSession(place, known));
  return [...pushed, ...listPendingElsewhere(place)];
}

type Step = string | ((scene: Scene) => unknown);
type Words = readonly string[];

/** Machines whose name is another: processes on the disk of the first one, whose own is gone. */
const PROCESSES: Readonly<Record<string, string>> = { again: "one again", last: "the last" };

/** The line that a word names. */
export function lineOf(word: string): string {
  const [n, parent] = word.split("<");
  if (parent === undefined) return line(Number(n));
  return userText(id(Number(n)), parent === "" ? null : id(Number(parent)), `on one ${n}`);
}

/** Lines as they are, but for leaf markers. */
function shown(texts: Words): string[] {
  return texts.map((text) => {
    const { customType, parentId } = JSON.parse(text);
    return customType === LEAF_MARKER
      ? `@${parentId === null ? "" : Number.parseInt(parentId, 16) - 0xa0000000}`
      : text;
  });
}

const meant = (words: Words): string[] => words.map((word) => (word.startsWith("@") ? word : lineOf(word)));

/** Returns a function that restores the fleet's present state of the session, without a holder. */
export function remembered({ table }: MemoryFleet): () => void {
  const row = table.rows.get(SESSION);
  if (!row) throw new Error("the session is missing");
  const before = { ...row, holder: null, lines: [...row.lines], epochs: [...row.epochs], facts: [...row.facts] };
  return () => void Object.assign(row, before);
}

/** A machine with its log, which is opened when it is first asked for, or made where it has no copy. */
class Actor {
  readonly machine: Machine;
  opened: Log | undefined;
  /** Calls of its fleet until it was last looked at. */
  mark = 0;

  constructor(machine: Machine) {
    this.machine = machine;
  }

  get log(): Log {
    const { disk, file, store } = this.machine;
    const isThere = (): boolean => disk.paths().some((path) => path.startsWith(file));
    this.opened ??= isThere() ? store.open(file) : this.machine.create();
    return this.opened;
  }

  append(words: Words): void {
    this.log.append(words.map((word) => toBytes(lineOf(word))));
  }

  close(): void {
    this.opened?.close();
    this.opened = undefined;
  }
}

const VERBS: Readonly<Record<string, (actor: Actor, words: Words, scene: Scene) => unknown>> = {
  writes(actor, words) {
    actor.append(words);
    return actor.log.commit();
  },
  appends: (actor, words) => actor.append(words),
  refuses(actor, [name, ...words]) {
    const next = words.length > 0 ? words : [`${actor.log.nodes.count}`];
    expect(() => actor.append(next)).toThrow(failed(name));
  },
  /** Its disk has a copy. */
  has: ({ machine }, words) => machine.put(words.map(lineOf)),
  /** A program that knows nothing of the fleet writes. */
  adds: ({ machine }, words) => machine.addPlainly(words.map(lineOf)),
  /** Such a program writes, and it is seen. */
  async sees({ machine, log }, words) {
    await machine.addPlainly(words.map(lineOf));
    log.refresh();
  },
  /** A server is there, with a copy, when leases have run out. */
  async takes(actor, words) {
    actor.machine.fleet.leasesEnd = true;
    await actor.machine.put(words.map(lineOf));
    await actor.log.replica?.ready();
  },
  /** The fleet grants it the session, without its knowledge. */
  robs({ machine: { fleet } }) {
    fleet.leasesEnd = true;
    return fleet.take(SESSION);
  },
  /** Another machine with these lines writes those behind the colon, and ends. */
  async elsewhere(_, words, scene) {
    const colon = words.indexOf(":");
    scene.actors.delete("two");
    await scene.play(`two takes ${words.slice(0, colon).join(" ")}`, `two writes ${words.slice(colon + 1).join(" ")}`);
    scene.actor("two").close();
    scene.actors.delete("two");
  },
  appendsUnsynced: ({ machine }, words) =>
    machine.plain.open(machine.file).append(words.map((word) => toBytes(lineOf(word)))),
  commits: ({ log }) => log.commit(),
  /** The disk lost the lines of the copy but these. */
  reverts: ({ machine }, words) => machine.revert(words.map(lineOf)),
  /** Another program moves the file of the session away. */
  gone: ({ machine: { disk, file } }) => disk.rename(file, `${file}.away`),
  closes: (actor) => actor.close(),
  unlocks: ({ log }) => log.lock.release(),
  locks: ({ log }) => log.lock.acquire(),
  asks: ({ log }) => log.replica?.ready(),
  looks: ({ log }) => log.refresh(),
  confirms: ({ log }) => log.replica?.confirm(),
  gives: ({ log }) => log.replica?.upload(),
  follows: ({ log }) => followed(log),
  async finds(actor) {
    actor.opened = await found(actor.log);
  },
  /** Another copy is in the place of the one that was open. */
  reopens(actor) {
    const { log } = actor;
    expect(log.refresh().kind).toBe("replaced");
    actor.opened = log.reopen();
    log.close();
  },
  async waits() {
    for (let n = 0; n < 8; n++) await Promise.resolve();
  },

  // Faults of one machine, or of all of them.
  cut: ({ machine }) => machine.fails(() => "before"),
  heals: ({ machine }) => machine.fails(() => undefined),
  /** The call fails: before or after its effect, or it is late; the others with it, where that is said. */
  loses: ({ machine }, [call, fault, others]) =>
    machine.fails((name) => (name === call ? fault : others) as FleetFault | undefined),
  outage: ({ machine }) => machine.outage?.begin(),
  expires({ machine }) {
    machine.fleet.leasesEnd = true;
  },
  /** Its sessions rest. */
  rests({ machine }) {
    machine.fleet.isIdle = true;
  },
  later(_, [milliseconds], scene) {
    scene.clock += Number(milliseconds);
  },
  /** Ends the holder's lease of the session. */
  leaves: (_actor, _words, { table }) => table.leave(),
  deleted: (_actor, _words, { row }) => Object.assign(row, { isDeleted: true, holder: null, epoch: row.epoch + 1 }),
  restored: (_actor, _words, { row }) => Object.assign(row, { isDeleted: false }),
  remembers(actor, _, scene) {
    scene.goBack = remembered(actor.machine.fleet);
  },
  forgets: (_actor, _words, scene) => scene.goBack(),
  /** Removes the note of its pending lines. */
  unnoted: ({ machine: { disk } }) => disk.remove(notesOn(disk)[0]),

  // Expectations.
  fleet: (_, words, { table }) => expect(shown(table.linesOf(SESSION))).toEqual(meant(words)),
  copy: ({ log }, words) => expect(shown(textsOf(log))).toEqual(meant(words)),
  aside: ({ machine }, words) => expect(machine.quarantined).toEqual(words.map(lineOf)),
  /** The damage and state of a copy; `:8`: of this entry. */
  told: ({ log }, words) =>
    expect(log.damage).toEqual(
      words.map((word) => {
        const [kind, n] = word.split(":");
        return expect.objectContaining({ kind, ...(n === undefined ? {} : { entryId: id(Number(n)) }) });
      }),
    ),
  is: ({ log }, [durability]) => expect(log.replica?.status.durability).toBe(durability),
  durable: ({ log }, [count]) => expect([log.durableCount, log.persisted]).toEqual([Number(count), count !== "0"]),
  notes: ({ machine }, [count]) => expect(notesOn(machine.disk)).toHaveLength(Number(count)),
  /** The outcomes of the machine's uploads; `:one`: for the copy of that one. */
  async pushes({ machine }, words, scene) {
    const meant = words.map((word) => {
      const [outcome, name] = word.split(":");
      return { sessionId: SESSION, outcome, ...(name ? { sessionPath: scene.actor(name).machine.file } : {}) };
    });
    expect(await uploadAll(placeOf(machine))).toMatchObject(meant);
  },
  owed: ({ machine }, [count]) => expect(listPendingUploads(placeOf(machine))).toHaveLength(Number(count)),
  /** The first entry of a copy's pending lines. */
  owes({ machine, log }, [from]) {
    const first = machine.journal.of(SESSION, log.file as string)?.from?.entries;
    expect(`${first ?? "nothing"}`).toBe(from);
  },
  /** The epochs of its lines. */
  epochs: (_, words, { row }) => expect(row.epochs).toEqual(words.map(Number)),
  holder: (_, [name], { table }) => expect(table.rows.get(SESSION)?.holder?.id ?? "nobody").toBe(name),
  locked: ({ log }, [, name]) => expect(log.lock.holder?.client ?? "nobody").toBe(name),
  marks(actor) {
    actor.mark = actor.machine.fleet.calls.length;
  },
  /** The kinds of calls since the mark. */
  asked: ({ machine, mark }, words) => expect([...new Set(machine.fleet.calls.slice(mark))]).toEqual(words),
};

export class Scene {
  readonly table = new FleetTable();
  readonly actors = new Map<string, Actor>();
  clock = 0;
  goBack: () => void = () => {};
  private readonly kind: MachineKind;
  private readonly options: MachineOptions;

  /** `options` are those of the first machine. */
  constructor(kind: MachineKind, options: MachineOptions = {}) {
    this.kind = kind;
    this.options = options;
  }

  actor(name: string): Actor {
    return this.actors.get(name) ?? this.begin(name);
  }

  /**
   * Begins a machine, or another process on the disk of the first one, with such options: it goes on "alone", has its copy
   * "elsewhere", or begins "after a loss" of power.
   */
  begin(name: string, words: Words = []): Actor {
    const elapsed = (): number => this.clock;
    const isProcess = name in PROCESSES || words.length > 0;
    const process = (): MachineOptions => ({
      disk: words.includes("loss") ? this.one.disk.after(POWER_CUTS[0]) : this.one.disk,
      isJournaled: words.includes("alone"),
      ...(words.includes("elsewhere") ? { folder: "/root/other" } : {}),
    });
    const options = { elapsed, ...(name === "one" ? this.options : isProcess ? process() : {}) };
    const machine = new Machine(this.kind, this.table, PROCESSES[name] ?? name, options);
    machine.fleet.leasesEnd = isProcess;
    const actor = new Actor(machine);
    this.actors.set(name, actor);
    return actor;
  }

  get one(): Machine {
    return this.actor("one").machine;
  }

  get log(): Log {
    return this.actor("one").log;
  }

  get row() {
    const row = this.table.rows.get(SESSION);
    if (!row) throw new Error("the session is missing");
    return row;
  }

  /** Plays steps one after the other; a semicolon or the end of a line ends a step. A failure names its step. */
  async play(...steps: readonly Step[]): Promise<this> {
    const all = steps.flatMap((one): Step[] =>
      typeof one === "string" ? one.split(/;\s*|\n\s*/).filter(Boolean) : [one],
    );
    for (const step of all)
      try {
        await (typeof step === "string" ? this.act(step) : step(this));
      } catch (error) {
        if (error instanceof Error) error.message = `${step}: ${error.message}`;
        throw error;
      }
    this.table.check();
    return this;
  }

  private act(step: string): unknown {
    const words = step.split(" ").filter(Boolean);
    if (words[1] === "begins") return this.begin(words[0], words.slice(2));
    const name = words[0] in VERBS ? "one" : (words.shift() as string);
    const [verb, ...given] = words;
    const [, failure, isRetryable] = /^!(\w+)(\??)$/.exec(given.at(-1) ?? "") ?? [];
    const done = VERBS[verb](this.actor(name), failure ? given.slice(0, -1) : given, this);
    if (!failure) return done;
    return expect(Promise.resolve(done)).rejects.toEqual(failed(failure, isRetryable ? { retryable: true } : {}));
  }
}

/** Declares a test of each scene. */
export function testScenes(kind: MachineKind, options: MachineOptions, scenes: Readonly<Record<string, string>>): void {
  for (const [title, steps] of Object.entries(scenes)) test(title, () => new Scene(kind, options).play(steps));
}
