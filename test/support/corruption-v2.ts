/** Damage to the files of a container of Store V2, and what must still be there after it. */

import { expect } from "vitest";
import type { Failure } from "../../src/core/failure.ts";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import type { Log } from "../../src/core/ports/store.ts";
import { DAMAGES, type DamageKind, damaged } from "./corruption.ts";
import type { FaultDisk } from "./disk.ts";
import { randomModel } from "./model.ts";
import type { Random } from "./random.ts";
import { idsOf, textsOf } from "./sessions.ts";
import { CONTAINER, containerWith, contentsOf, faultsOf, framesOf, v2On } from "./v2.ts";

interface ContainerSample {
  readonly disk: FaultDisk;
  /** Its entries by their ids, as text. */
  readonly entries: ReadonlyMap<string, string>;
  /** Its frames as lines, each with the id of its entry. */
  readonly frames: readonly { readonly line: string; readonly id: string }[];
}

/** Returns a container with entries of all kinds, in one segment or in several. */
async function containerSample(random: Random, entries: number): Promise<ContainerSample> {
  const lines = randomModel(random, { entries, branching: 0.1 }).lines();
  const disk = await containerWith(lines, random.chance(0.5) ? { segmentBytes: 4000 } : {});
  const frames = framesOf(disk, CONTAINER)
    .flat()
    .map(({ line, value }) => ({ line, id: value.entryId as string }));
  return { disk, frames, entries: new Map(lines.map((line) => [JSON.parse(line).id, line])) };
}

/** Returns the files of a container, and the pointer next to it. */
function partsIn({ disk }: ContainerSample): string[] {
  return disk.paths().filter((path) => path.startsWith(CONTAINER) || path.endsWith(".store.json"));
}

/** Returns where the last records of a file begin: those that a crash may spoil. */
function lastRecords(bytes: Uint8Array, count: number): number {
  let at = bytes.length - 1;
  for (let n = 0; n < count && at > 0; n++) at = bytes.lastIndexOf(0x0a, at - 1);
  return Math.max(0, at + 1);
}

/** Returns the entries of a log by their ids, without stand-ins. */
function entriesIn(log: Log): Map<string, string> {
  const there = new Map<string, string>();
  for (const [position, id] of idsOf(log).entries()) {
    const text = decodeText(log.read(position));
    if (JSON.parse(text).damaged !== true) there.set(id, text);
  }
  return there;
}

function expectAll(log: Log, sample: ContainerSample, ids: readonly string[], when: string, repaired = false): void {
  const there = entriesIn(log);
  // A repair writes down which parents reading found.
  const shown = (text = "") => (repaired ? text.replace(/"parentId":("[^"]*"|null)/, '"parentId":') : text);
  const missing = ids.filter((id) => shown(there.get(id)) !== shown(sample.entries.get(id)));
  expect(missing, when).toEqual([]);
}

/**
 * Opens a container whose files at `paths` have other bytes than in the sample. Every entry whose frame is whole is there
 * byte for byte, the others are reported, opening writes nothing, and an append (after a repair, if one is asked for) and
 * another opening keep all of it.
 */
async function checkDamagedDisk(sample: ContainerSample, disk: FaultDisk, paths: string[]): Promise<void> {
  const textOfFile = (on: FaultDisk, path: string) => Buffer.from(on.content(path) ?? "").toString("latin1");
  const isUntouched = paths.every((path) => textOfFile(disk, path) === textOfFile(sample.disk, path));
  const before = contentsOf(disk);
  let log: Log;
  try {
    log = v2On(disk).open(CONTAINER);
  } catch (error) {
    // Without header or pointer nothing says which session this is; every byte stays as it is.
    expect(["not_a_session", "corrupt"], String(error)).toContain((error as Failure).name);
    expect(paths.join("\n"), String(error)).toMatch(/header\.jsonl$|\.store\.json$/m);
    expect(contentsOf(disk)).toEqual(before);
    return;
  }
  const segments = disk.paths().filter((path) => path.endsWith(".seg"));
  // Also where the bytes before a frame lost their line feed.
  const texts = segments.map((path) => textOfFile(disk, path));
  const isIntact = (line: string) => texts.some((text) => text.includes(Buffer.from(line).toString("latin1")));
  const intact = sample.frames.filter(({ line }) => isIntact(line)).map(({ id }) => id);
  expectAll(log, sample, intact, "at the first reading");
  const isThere = textsOf(log).length === sample.frames.length && entriesIn(log).size === sample.frames.length;
  // If a frame's row is lost as well, nothing records the time of the frame.
  const all = isThere && (intact.length === sample.frames.length || paths.length > 1);
  if (!isUntouched && !all) expect(log.damage.length, "damage that is told").toBeGreaterThan(0);
  expect(contentsOf(disk), "reading wrote").toEqual(before);
  // A version that looks newer is nothing that we know how to write.
  if (log.readOnly?.name === "unsupported_version") return log.close();
  const repaired = log.readOnly !== null;
  if (repaired) {
    log.repair();
    log.close();
    log = v2On(disk).open(CONTAINER);
    expect(log.readOnly, "after a repair").toBe(null);
  }
  log.append([toBytes('{"type":"custom","id":"appended","parentId":null,"customType":"x"}')]);
  await log.commit();
  log.close();
  const again = v2On(disk.after()).open(CONTAINER);
  expectAll(again, sample, intact, "after an append", repaired);
  expect(again.nodes.position("appended")).toBeGreaterThanOrEqual(0);
  again.close();
  // Other damage stays until the session is repaired.
  if (repaired) expect(faultsOf(disk, CONTAINER)).toEqual([]);
}

/** The extent of the damage: last records of each file, in steps, random places, and a segment with another file. */
interface Extent {
  readonly records: number;
  /** Bytes to the next place in a segment, and in another file. */
  readonly step: (isSegment: boolean) => number;
  readonly more?: number;
  readonly pairs?: number;
}

/** Damages each file of a container, and segments with the records of their frames. Returns the number of cases. */
export async function damageContainers(random: Random, kind: DamageKind, extent: Extent): Promise<number> {
  let count = 0;
  const whole = await containerSample(random, 5 + random.int(8));
  const { records, step, more = 0, pairs = 0 } = extent;
  const bytesOf = (path: string): Buffer => Buffer.from(whole.disk.content(path) ?? "");
  const check = async (path: string, at: number): Promise<void> => {
    const disk = whole.disk.after();
    disk.put(path, damaged(bytesOf(path), kind, at, random));
    await checkDamagedDisk(whole, disk, [path]);
    count++;
  };
  for (const path of partsIn(whole)) {
    const { length } = bytesOf(path);
    for (let at = lastRecords(bytesOf(path), records); at < length; at += step(path.endsWith(".seg")))
      await check(path, at);
    for (let n = 0; n < more && length > 0; n++) await check(path, random.int(length));
  }
  for (let n = 0; n < pairs; n++, count++) {
    const disk = whole.disk.after();
    const files = partsIn(whole).filter((path) => /\.seg$|offsets\.jsonl$|snapshot\.bin$/.test(path));
    const paths = [random.pick(files.filter((path) => path.endsWith(".seg"))), random.pick(files)];
    for (const path of paths) {
      const bytes = Buffer.from(disk.content(path) ?? "");
      if (!path.endsWith(".seg") && random.chance(0.3)) disk.remove(path);
      else disk.put(path, damaged(bytes, random.pick(DAMAGES), random.int(bytes.length), random));
    }
    await checkDamagedDisk(whole, disk, paths);
  }
  return count;
}
