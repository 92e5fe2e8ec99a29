/**
 * The guarantees of every store of files while its disk fails at any operation of a change, its process dies there, or the
 * power goes then (reliability cases, guarantee 2, S2, S3): an acknowledged change is there afterwards, a refused one is
 * nowhere, and the next change works. A store's own test gives its changes and the layout of its files.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import type { Session } from "../../src/core/session/session.ts";
import type { Workspace } from "../../src/core/session/workspace.ts";
import { getAttachmentFolder } from "../../src/storage/log/attachments.ts";
import {
  appendMessages,
  type Left,
  requireKept,
  requireLasting,
  requireOutcome,
  type Scenario,
  withFaults,
} from "../support/change-faults.ts";
import type { Fault, FaultDisk } from "../support/disk.ts";
import { chain, id } from "../support/lines.ts";
import { isEvery } from "../support/random.ts";
import { repairAgainAfterFaults } from "../support/repair-faults.ts";
import { FOLDER, idsOf, textsOf, workspaceOn } from "../support/sessions.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

/** One of so many operations is tested: first in the tier of the file, then in the sweep; 0 for none. */
type Shares = readonly number[];

export interface FaultyKind {
  readonly name: "jsonl" | "v2";
  /** Path of the session of most scenarios, which has the entries 0 to 2. */
  readonly file: string;
  readonly three: () => FaultDisk;
  readonly open: (disk: FaultDisk, seed?: number, file?: string) => Session;
  readonly scenarios: readonly Scenario[];
  /** The shares of a scenario under a fault. */
  readonly shares: (scenario: string, fault: string) => Shares;
  /** Forks by name, with the last entry that they take over. */
  readonly forks: readonly (readonly [name: string, end: number])[];
  readonly forkShares: (fault: string) => Shares;
  /** The session with something in it that a repair repairs. */
  readonly damaged: () => FaultDisk;
  readonly repairShares: Shares;
  readonly repairedAgain: readonly number[];
  /** The files in which a repair keeps the original. */
  readonly backups: (disk: FaultDisk) => string[];
  readonly openings: readonly (readonly [name: string, disk: () => FaultDisk])[];
  /** Expects that the files of a session keep their rules; half way through a repair if `isRepaired` is false. */
  readonly checkFiles: (disk: FaultDisk, file: string, at: string, isRepaired?: boolean) => void;
  /** Paths of files that may exist when a change is over. */
  readonly places: RegExp;
}

const failing =
  (...errnos: string[]) =>
  (at: number): Fault => ({ kind: "fail", at, errno: errnos[at % errnos.length] });

/** Both errors at every operation in the long runs; else they take turns, for they differ only in the failure's name. */
export const ERRORS: [string, (at: number) => Fault][] = isEvery()
  ? ["ENOSPC", "EIO"].map((errno) => [errno, failing(errno)])
  : [["an error", failing("ENOSPC", "EIO")]];
export const ERRORS_AND_SHORT: typeof ERRORS = [
  ...ERRORS,
  ["a short write", (at) => ({ kind: "short", at, errno: "ENOSPC" })],
];
export const DEATH: (typeof ERRORS)[number] = ["death", (at) => ({ kind: "die", at })];

export const THREE_IDS = [id(0), id(1), id(2)];

/** Entries of a session in memory; what waits for the first append is in no file. */
export function known(session: Session): string[] {
  return idsOf(session.log).filter((_, position) => session.tree.isVisible(position));
}

/** Tests a share of the operations in the tier of the file, and the next in the sweep. */
function testShares(shares: Shares, title: string, run: (ofMany: number) => Promise<void>): void {
  for (const [n, ofMany] of shares.entries())
    if (ofMany > 0) test.each([ofMany])(`${title} (one of %i)`, n === 0 ? {} : SWEEP, run);
}

export function survivesFaults(kind: FaultyKind): void {
  const { file, open, checkFiles, backups } = kind;
  const isThere = (disk: FaultDisk) =>
    disk.content(kind.name === "v2" ? file.replace(".v2", ".store.json") : file) !== undefined;
  /** The entries of the session as the next process finds them. */
  function found(disk: FaultDisk): string[] {
    const session = open(disk.after());
    const ids = known(session);
    session.close();
    return ids;
  }

  /** Places where a change failed: the next one fails only at its own places, and at all in the long runs. */
  const places = new Map<number, Set<string>>();

  describe.each(kind.scenarios.map((scenario) => [scenario.name, scenario] as const))("%s", (name, scenario) => {
    for (const [fault, faultAt] of ERRORS_AND_SHORT) {
      const title = `with ${fault} is done or not done, memory is what the files are, and the next change works without litter`;
      testShares(kind.shares(name, fault), title, async (ofMany) => {
        const seen = places.get(ofMany) ?? new Set();
        places.set(ofMany, seen);
        const check = async (left: Left): Promise<void> => {
          const { disk, session, operation, at } = left;
          const ids = known(session);
          requireOutcome(left, scenario, ids);
          if (session.log.persisted) expect(found(disk), at).toEqual(ids);
          // A removal that fails may leave its target.
          else if (kind.name === "jsonl" || operation !== "remove") expect(isThere(disk), at).toBe(false);
          expect(session.tree.entryCount).toBe(ids.length);
          if (kind.name === "jsonl") checkFiles(disk, file, at);
          await appendMessages(session, id(50));
          await appendMessages(session, id(51), id(52));
          const after = [...ids, id(50), id(51), id(52)];
          expect(known(session), at).toEqual(after);
          for (const { disk: next } of disk.lasting()) expect(found(next), at).toEqual(after);
          session.close();
          expect(disk.openCount, at).toBe(0);
          checkFiles(disk, file, at);
          if (operation === "remove") return;
          for (const path of disk.paths()) expect(path, at).toMatch(kind.places);
          expect(disk.paths().filter((path) => path.includes(".bak")).length, at).toBeLessThanOrEqual(1);
        };
        await withFaults(scenario, faultAt, check, seen, ofMany);
      });
    }

    const deaths = kind.shares(name, "death");
    testShares(deaths, "by dying keeps what was acknowledged, and the next process goes on", async (ofMany) => {
      const seen = new Set<string>();
      const check = async ({ disk, acknowledged, at }: Left): Promise<void> => {
        for (const { disk: after, cut } of disk.crashes(seen, acknowledged.join())) {
          const where = `${at}, ${JSON.stringify(cut)}`;
          const isNothing = () => expect([scenario.before, acknowledged], where).toEqual([[], []]);
          if (!isThere(after)) {
            isNothing();
            continue;
          }
          let session: Session;
          try {
            session = open(after, 5);
          } catch (error) {
            // A container in the making, with only its name left by a power cut.
            isNothing();
            expect([kind.name, error instanceof Failure], `${where} ${error}`).toEqual(["v2", true]);
            continue;
          }
          const ids = known(session);
          if (kind.name === "jsonl") checkFiles(after, file, where);
          for (const entryId of [...scenario.before, ...acknowledged]) expect(ids, where).toContain(entryId);
          requireKept(after, scenario, where);
          const { nodes } = session.log;
          const isNew = (entryId: string) =>
            !scenario.before.includes(entryId) && nodes.type(nodes.position(entryId)) === "message";
          // All of an append or nothing of it.
          expect([0, scenario.ids.length], where).toContain(ids.filter(isNew).length);
          await requireLasting(after, (disk) => open(disk, 6), known, where);
          await appendMessages(session, id(50));
          // The entries of the dead process are as durable now as later ones.
          for (const { disk: last } of after.lasting()) {
            expect(found(last), where).toEqual([...ids, id(50)]);
            requireKept(last, scenario, where);
          }
          session.close();
          if (kind.name === "v2") checkFiles(after, file, where);
        }
      };
      await withFaults(scenario, DEATH[1], check, undefined, ofMany);
    });
  });

  describe.each(kind.forks)("%s", (_name, end) => {
    const blobOf = (path: string) => `${getAttachmentFolder(path)}/${"a".repeat(64)}`;
    const stemOf = (path: string) => path.replace(/\.(jsonl|v2|store\.json)$/, "");
    const besides = (disk: FaultDisk) =>
      disk.paths().filter((path) => path.startsWith(FOLDER) && !path.startsWith(stemOf(file)));
    /** The sessions that have a name, but for the first. */
    const others = (disk: FaultDisk) =>
      besides(disk).flatMap((path) => {
        if (kind.name === "jsonl") return path.endsWith(".jsonl") ? [path] : [];
        return path.endsWith(".store.json") ? [`${stemOf(path)}.v2`] : [];
      });

    function checkWhole(disk: FaultDisk, path: string, at: string): void {
      const session = open(disk, 2, path);
      expect([textsOf(session.log), session.diagnostics], at).toEqual([chain(end + 1), []]);
      session.close();
      expect(decodeText(disk.content(blobOf(path)) ?? toBytes("no attachment")), at).toBe("attached");
      checkFiles(disk, path, at);
    }

    for (const [fault, faultAt] of [...ERRORS_AND_SHORT, DEATH])
      testShares(kind.forkShares(fault), `with ${fault} is there, whole, or leaves nothing`, async (ofMany) => {
        let made: string | undefined;
        let workspace: Workspace;
        const fork = async (session: Session): Promise<string> => {
          const forked = await workspace.fork(session, end);
          forked.close();
          return forked.file as string;
        };
        const scenario: Scenario = {
          name: "a fork",
          disk: () => {
            const disk = kind.three();
            disk.put(blobOf(file), toBytes("attached"));
            workspace = workspaceOn(disk, kind.name);
            return disk;
          },
          open,
          ids: [],
          change: async (session) => {
            made = undefined;
            made = await fork(session);
          },
          before: THREE_IDS,
          atLeast: 8,
        };
        const seen = new Set<string>();
        const check = async ({ disk, session, operation, at }: Left): Promise<void> => {
          if (fault === "death") {
            for (const { disk: after, cut } of disk.crashes(seen, made)) {
              const where = `${at}, ${JSON.stringify(cut)}`;
              expect(found(after), where).toEqual(THREE_IDS);
              for (const path of others(after)) checkWhole(after, path, where);
              if (made !== undefined) expect(others(after), where).toEqual([made]);
            }
            return;
          }
          const isRemoval = operation.startsWith("remove");
          if (kind.name === "jsonl" || !isRemoval || made)
            expect(others(disk), at).toEqual(made === undefined ? [] : [made]);
          if (made !== undefined) checkWhole(disk, made, at);
          expect(disk.content(file), at).toEqual(kind.three().content(file));
          expect(disk.content(blobOf(file)), at).toBeDefined();
          const strays = besides(disk).filter((path) => made === undefined || !path.startsWith(stemOf(made)));
          if (!isRemoval) expect(strays, at).toEqual([]);
          expect(found(disk), at).toEqual(THREE_IDS);
          checkWhole(disk, await fork(session), at);
          session.close();
          expect(disk.openCount, at).toBe(0);
        };
        await withFaults(scenario, faultAt, check, undefined, ofMany);
      });
  });

  describe("opening", () => {
    test.each(kind.openings)("%s with any operation failing fails or is the session, and leaves nothing", (_, make) => {
      const contents = (disk: FaultDisk) =>
        disk.paths().map((path) => `${path} ${Buffer.from(disk.content(path) as Uint8Array).toString("hex")}`);
      const wanted = textsOf(open(make()).log);
      for (let at = 1; ; at++) {
        const disk = make();
        const before = contents(disk);
        disk.set({ kind: "fail", at, errno: "EIO" });
        let session: Session | undefined;
        try {
          session = open(disk);
          expect(textsOf(session.log)).toEqual(wanted);
        } catch (error) {
          expect(error).toMatchObject({ name: "storage_failed" });
        } finally {
          session?.close();
        }
        const { struck, operations } = disk;
        disk.set(undefined);
        expect(disk.openCount, operations.join(" ")).toBe(0);
        expect(contents(disk)).toEqual(before);
        if (!struck) break;
      }
    });
  });

  describe("a repair", () => {
    function requireSound(disk: FaultDisk, where: string): Session {
      const session = open(disk);
      expect([known(session), session.log.damage, session.log.readOnly], where).toEqual([THREE_IDS, [], null]);
      expect(backups(disk).length, where).toBe(1);
      return session;
    }

    for (const [fault, faultAt] of [...ERRORS_AND_SHORT, DEATH]) {
      const title = `with ${fault} is done, or can be done by whoever comes next, and nothing that is legible is lost`;
      testShares(kind.repairShares, title, async (ofMany) => {
        const scenario: Scenario = {
          name: "a repair",
          disk: kind.damaged,
          open,
          ids: [],
          change: async (session) => {
            session.repair(false);
            // A renamed file is durable with its folder.
            await session.commit();
          },
          before: THREE_IDS,
          atLeast: 8,
        };
        const seen = new Set<string>();
        const check = async ({ disk, session, failure, at }: Left): Promise<void> => {
          if (failure !== undefined) expect(failure, at).toBeInstanceOf(Failure);
          else expect(backups(disk).length, at).toBe(1);
          if (fault !== "death") {
            session.close();
            expect(disk.openCount, at).toBe(0);
          }
          for (const { disk: after, cut } of fault === "death"
            ? disk.crashes(seen)
            : [{ disk: disk.after(), cut: "" }]) {
            const where = `${at}, ${JSON.stringify(cut)}`;
            checkFiles(after, file, where, false);
            const next = open(after);
            expect(known(next), where).toEqual(THREE_IDS);
            if (next.log.damage.length > 0) next.repair(false);
            next.close();
            const last = requireSound(after, where);
            await appendMessages(last, id(50));
            last.close();
            checkFiles(after, file, where);
          }
        };
        await withFaults(scenario, faultAt, check, undefined, ofMany);
      });
    }

    acrossTiers(test, kind.repairedAgain)(
      "outlasts a loss of power, also asked for again after %i faults",
      async (count) => {
        const seen = new Set<string>();
        const requireAll = (disk: FaultDisk, where: string): void => {
          for (const { disk: after, cut } of disk.crashes(seen)) {
            requireSound(after, `${JSON.stringify(cut)} ${where}`).close();
            checkFiles(after, file, where);
          }
        };
        const disk = kind.damaged();
        const session = open(disk);
        expect(session.repair(false).backupPath).not.toBeNull();
        await session.commit();
        session.close();
        requireAll(disk, "");
        await repairAgainAfterFaults(kind.damaged, open, requireAll, count);
      },
    );
  });
}
