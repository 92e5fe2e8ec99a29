/** One change to a session with a fault at every disk operation that it takes; for every backend. */

import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import type { Draft } from "../../src/core/format/entry.ts";
import { toBytes } from "../../src/core/json/json.ts";
import type { Store } from "../../src/core/ports/store.ts";
import type { Session } from "../../src/core/session/session.ts";
import { type Fault, FaultDisk, faultPoints } from "./disk.ts";
import { headerText, id, userText } from "./lines.ts";
import { share } from "./random.ts";
import { beginning, idsOf } from "./sessions.ts";

export interface Scenario {
  readonly name: string;
  readonly disk: () => FaultDisk;
  readonly open: (disk: FaultDisk) => Session;
  /** Makes one change that adds entries with these ids. */
  readonly ids: readonly string[];
  readonly change: (session: Session) => Promise<void>;
  /** Entries that are there before, as often as they are opened. */
  readonly before: readonly string[];
  /** At least so many operations belong to the change. */
  readonly atLeast: number;
  /** The rest of a dead writer behind them, which is kept under some name. */
  readonly torn?: string;
}

export interface Left {
  readonly disk: FaultDisk;
  readonly session: Session;
  /** The failure that the caller of the change got. */
  readonly failure: unknown;
  readonly acknowledged: readonly string[];
  readonly refused: readonly string[];
  /** The operation that failed, and the whole story for messages. */
  readonly operation: string;
  readonly at: string;
}

/** Expects that a failure was the disk's, and that the known entries are all acknowledged ones and no refused one. */
export function requireOutcome(
  { failure, acknowledged, refused, at }: Left,
  { before }: Scenario,
  known: readonly string[],
): void {
  if (failure !== undefined) {
    expect(failure, at).toBeInstanceOf(Failure);
    expect(["storage_full", "storage_failed"], at).toContain((failure as Failure).name);
  }
  for (const entryId of [...before, ...acknowledged]) expect(known, at).toContain(entryId);
  for (const entryId of refused) expect(known, at).not.toContain(entryId);
}

/**
 * Runs a change with a fault at every operation where it shows something of its own, and passes on the disk after it. `seen`
 * has the places where other changes failed already ({@link faultPoints}). One of `ofMany` of the operations is taken, or
 * `most`.
 */
export async function withFaults(
  scenario: Scenario,
  faultAt: (at: number) => Fault,
  check: (left: Left) => Promise<void>,
  seen?: Set<string>,
  ofMany = 1,
  most?: number,
): Promise<void> {
  const whole = scenario.disk();
  const unharmed = scenario.open(whole);
  whole.record();
  await scenario.change(unharmed);
  const { kind } = faultAt(1);
  expect(whole.operations.length).toBeGreaterThanOrEqual(kind === "short" ? 1 : scenario.atLeast);
  const points = faultPoints(kind, whole, seen);
  if (seen === undefined || kind !== "fail") expect(points).not.toEqual([]);
  for (const at of share(points, most ?? Math.ceil(points.length / ofMany))) {
    const disk = scenario.disk();
    const session = scenario.open(disk);
    let failure: unknown;
    disk.set(faultAt(at));
    try {
      await scenario.change(session);
    } catch (error) {
      failure = error;
    }
    const operations = [...disk.operations];
    expect(disk.struck, `operation ${at} of ${operations.join(" ")}`).toBe(true);
    disk.set(undefined);
    const done = failure === undefined;
    await check({
      disk,
      session,
      failure,
      acknowledged: done ? scenario.ids : [],
      refused: done ? [] : scenario.ids,
      operation: operations[at - 1],
      at: `operation ${at} of ${operations.join(" ")}`,
    });
  }
}

/** A message of the user with an id. */
export function messageDraft(entryId: string): Draft {
  return { type: "message", id: entryId, rest: toBytes(`,"message":{"role":"user","content":"say ${entryId}"}`) };
}

/** Appends messages with these ids, all or none, and waits until they are durable. */
export async function appendMessages(session: Session, ...entryIds: string[]): Promise<void> {
  session.append(entryIds.map(messageDraft));
  await session.commit();
}

/** Expects that a disk still has what a dead writer left. */
export function requireKept(disk: FaultDisk, { torn = "" }: Scenario, where: string): void {
  const isKept = disk.paths().some((path) => Buffer.from(disk.content(path) ?? []).includes(torn));
  expect(isKept, `${where}: what was torn is kept`).toBe(true);
}

/** Requests that acknowledge entries that a process only found: a repeated key, and a mark of the end. */
const RELIANCES = [
  ["a repeated key", "settle"],
  ["a checkpoint", "checkpoint"],
] as const;

/** Expects that what another process left lasts once a process relies on it, and still does when that one has ended. */
export async function requireLasting(
  left: FaultDisk,
  open: (disk: FaultDisk) => Session,
  known: (session: Session) => string[],
  where: string,
): Promise<void> {
  for (const [reliance, rely] of RELIANCES) {
    const disk = left.afterDeath();
    const session = open(disk);
    const ids = known(session);
    const { log } = session;
    if (rely === "checkpoint" && !log.container) {
      session.close();
      continue;
    }
    log.lock.acquire();
    await (rely === "settle" ? log.settle() : log.container?.checkpoint());
    const requireAll = (): void => {
      for (const { disk: lasting, cut } of disk.lasting()) {
        const at = `${reliance}, ${where}, then ${JSON.stringify(cut)}`;
        const again = open(lasting);
        expect([known(again), again.log.readOnly], at).toEqual([ids, null]);
        again.close();
      }
    };
    requireAll();
    session.close();
    requireAll();
  }
}

/** Tests that a session lasts which is made in a folder whose maker was killed before its name was on the medium. */
export function lastsInFolderOfTheDead(file: string, storeOn: (disk: FaultDisk) => Store): void {
  test.each(["create", "publish"] as const)(
    "a session that is made by %s lasts in a folder that a killed process made",
    async (way) => {
      const dying = new FaultDisk();
      dying.put(join(dirname(file), "..", "x"), toBytes(""));
      dying.set({ kind: "die", at: 1 });
      expect(() => dying.makeFolder(dirname(file))).toThrow();
      const disk = dying.afterDeath();
      const wanted = beginning(headerText(), file);
      const first = toBytes(userText(id(0), null));
      if (way === "publish") (await storeOn(disk).publish(wanted, [first])).close();
      else {
        const log = storeOn(disk).create(wanted);
        log.append([first]);
        await log.commit();
        log.close();
      }
      for (const { disk: lasting } of disk.lasting()) expect(idsOf(storeOn(lasting).open(file))).toEqual([id(0)]);
    },
  );
}
