/** Damage to session files, and a plain reading of the rest, for the corruption property. */

import { expect } from "vitest";
import type { Failure } from "../../src/core/failure.ts";
import { toBytes } from "../../src/core/json/json.ts";
import { type Verdict, verifyInSteps } from "../../src/core/session/check.ts";
import type { Session } from "../../src/core/session/session.ts";
import { headerText } from "./lines.ts";
import { randomModel } from "./model.ts";
import type { Random } from "./random.ts";
import { diskWith, FILE, openOn } from "./sessions.ts";

/** Verifies a session at once. */
export function verify(session: Session): Verdict {
  const steps = verifyInSteps(session);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

export const DAMAGES = ["cut", "flip", "zero", "duplicate", "insert", "remove"] as const;
export type DamageKind = (typeof DAMAGES)[number];

interface Sample {
  readonly bytes: Buffer;
  readonly records: readonly Buffer[];
  /** The byte offset of each record. */
  readonly starts: readonly number[];
}

/** A valid session file: records of all kinds, some with their members in another order, long and short. */
function sample(random: Random, entries: number): Sample {
  const model = randomModel(random, { entries, branching: 0.1 });
  const records = model.lines().map((line) => {
    if (random.chance(0.1)) {
      const { type, id, parentId, timestamp, ...rest } = JSON.parse(line);
      return Buffer.from(JSON.stringify({ ...rest, id, type, parentId, timestamp }));
    }
    const text = random.chance(0.2) ? random.pick([" ü€𝄞 ", '{\\"type\\":\\"x', "\\u2028", "[]{}", "}"]) : "";
    return Buffer.from(line.replace("text ", `text ${text}`));
  });
  const lines = [Buffer.from(headerText()), ...records].map((line) => Buffer.concat([line, Buffer.from("\n")]));
  const starts = records.map((_, n) => lines.slice(0, n + 1).reduce((sum, { length }) => sum + length, 0));
  return { bytes: Buffer.concat(lines), records, starts };
}

export function damaged(bytes: Buffer, kind: DamageKind, at: number, random: Random): Buffer {
  const length = 1 + random.int(random.chance(0.2) ? 300 : 24);
  const before = bytes.subarray(0, at);
  const run = bytes.subarray(at, at + length);
  const after = bytes.subarray(at + run.length);
  const parts: Record<DamageKind, () => Uint8Array[]> = {
    cut: () => [before],
    flip: () => [before, Buffer.of(bytes[at] ^ (1 << random.int(8))), bytes.subarray(at + 1)],
    zero: () => [before, Buffer.alloc(run.length), after],
    duplicate: () => [before, run, run, after],
    insert: () => [before, Buffer.from(Array.from({ length }, () => random.int(256))), bytes.subarray(at)],
    remove: () => [before, after],
  };
  return Buffer.concat(parts[kind]());
}

interface Line {
  readonly start: number;
  readonly end: number;
  readonly entry: Record<string, unknown> | null;
}

/** Lines as any program would read them: where they are, and the entry each of them is, if it is one. */
function plainly(bytes: Buffer): Line[] {
  const lines: Line[] = [];
  for (let start = 0; start < bytes.length; ) {
    const feed = bytes.indexOf(0x0a, start);
    const end = feed < 0 ? bytes.length : feed;
    lines.push({ start, end, entry: entryOf(bytes.subarray(start, end)) });
    start = end + 1;
  }
  return lines;
}

function entryOf(line: Buffer): Record<string, unknown> | null {
  try {
    const value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
    return typeof value === "object" && value !== null && typeof value.type === "string" ? value : null;
  } catch {
    return null;
  }
}

/**
 * After a full read, every record whose bytes are all there is recovered byte for byte, every record that is no entry
 * any more is reported where it lies, and an append and another opening keep all of that.
 */
async function checkDamaged({ records }: Sample, bytes: Buffer): Promise<void> {
  const disk = diskWith(bytes);
  let session: Session;
  try {
    session = openOn(disk);
  } catch (error) {
    // Nothing is left that distinguishes a session from any other file; it stays unchanged.
    expect((error as Failure).name).toBe("not_a_session");
    expect(plainly(bytes).filter(({ entry }) => entry?.timestamp !== undefined && entry.type !== "session")).toEqual(
      [],
    );
    expect(Buffer.from(disk.content(FILE) as Uint8Array).equals(bytes)).toBe(true);
    return;
  }
  // A version that looks older gives the entries other ids, as that version has it.
  if (session.log.version < 3) return session.close();
  const intact = records.filter((record) => bytes.includes(record));
  verify(session);
  // Entries that a damaged line in the middle hides are looked for once that line was read.
  session.refresh();
  const reported = verify(session).damage;
  expectRecovered(session, intact, "at the first reading");
  for (const [number, { start, end, entry }] of plainly(bytes).entries()) {
    if (entry !== null || /^\s*$/.test(bytes.toString("latin1", start, end))) continue;
    const isReported = reported.some(({ byteOffset, length }) => byteOffset <= end && byteOffset + length >= start);
    if (!isReported) expect(reported, `damage in line ${number + 1}: ${bytes.subarray(start, end)}`).toContain("it");
  }
  expect(Buffer.from(disk.content(FILE) as Uint8Array).equals(bytes), "reading wrote").toBe(true);

  // A version that looks newer is nothing that we know how to write.
  if (session.log.readOnly?.name === "unsupported_version") return session.close();
  const repaired = session.log.readOnly !== null;
  if (repaired) session.repair(false);
  session.append([{ type: "message", id: "appended", rest: toBytes(',"message":{"role":"user","content":"more"}') }]);
  await session.commit();
  session.close();
  const again = openOn(disk.after(), FILE, 3);
  verify(again);
  again.refresh();
  expectRecovered(again, intact, repaired ? "after a repair and an append" : "after an append", repaired);
  expect(again.log.nodes.position("appended")).toBeGreaterThanOrEqual(0);
  expect(again.leafId).toBe("appended");
  again.close();
}

function expectRecovered(session: Session, intact: readonly Buffer[], when: string, repaired = false): void {
  const { log } = session;
  const textAt = (id: string): string | undefined => {
    const position = log.nodes.position(id);
    return position < 0 ? undefined : Buffer.from(log.read(position)).toString();
  };
  for (const record of intact) {
    const text = record.toString();
    const { id } = JSON.parse(text);
    // If damage made another entry of its id, the record has an alias.
    const called = [id, `${id}~2`, `${id}~3`];
    const there = called.map(textAt);
    const found = called.findIndex((name, index) => {
      const same = text.replace(`"id":"${id}"`, `"id":"${name}"`);
      // A repair writes down which parents reading found.
      return there[index] === same || (repaired && withoutParent(there[index]) === withoutParent(same));
    });
    if (found < 0) expect(there, `${id} ${when}`).toEqual([text, undefined, undefined]);
  }
}

function withoutParent(text = ""): string {
  return text.replace(/"parentId":("[^"]*"|null)/, '"parentId":');
}

/**
 * Damages the last four records of a file, at every byte or at steps of random length, and more files at random places.
 * Returns how many that were.
 */
export async function damageFiles(random: Random, kind: DamageKind, step: number, more: number): Promise<number> {
  let count = 0;
  const last = sample(random, 5 + random.int(12));
  for (let at = last.starts.at(-4) as number; at < last.bytes.length; at += 1 + random.int(step), count++)
    await checkDamaged(last, damaged(last.bytes, kind, at, random));
  for (let n = 0; n < more; n++, count++) {
    const file = sample(random, 5 + random.int(random.chance(0.2) ? 300 : 30));
    await checkDamaged(file, damaged(file.bytes, kind, random.int(file.bytes.length), random));
  }
  return count;
}
