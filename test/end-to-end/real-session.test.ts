/**
 * A real session of version 1, from before there were ids: read, continued, and the original kept.
 *
 * @module-tag system
 */

import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../src/core/json/json.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { linesOf } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { REFERENCE, REFERENCE_FOLDER } from "../support/programs.ts";
import { idsOf, messagesAt, openOn, textsOf } from "../support/sessions.ts";

const REAL = join(REFERENCE, "data/real-session-v1.jsonl");
const ENTRIES = 1018;

describe("the real session", needs(REFERENCE_FOLDER), () => {
  let folder: string;
  let file: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "pi-session-"));
    file = join(folder, "session.jsonl");
    copyFileSync(REAL, file);
    chmodSync(file, 0o640);
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  test("is one chain of all its entries, read without being touched", () => {
    const before = statSync(file, { bigint: true });
    const session = openOn(realDisk, file);
    const { nodes } = session.log;
    expect(nodes.count).toBe(ENTRIES);
    expect([session.diagnostics, session.log.version]).toEqual([[], 1]);
    for (let position = 0; position < ENTRIES; position++) expect(nodes.parent(position)).toBe(position - 1);
    expect(new Set(idsOf(session.log)).size).toBe(ENTRIES);
    expect([session.tree.leaf, session.tree.branchCount]).toEqual([ENTRIES - 1, 0]);
    expect(session.messageCount()).toBe(messagesAt(session).length);
    session.close();
    const after = statSync(file, { bigint: true });
    expect([after.mtimeNs, after.ctimeNs, after.size, after.ino]).toEqual([
      before.mtimeNs,
      before.ctimeNs,
      before.size,
      before.ino,
    ]);
    expect(readFileSync(file).equals(readFileSync(REAL))).toBe(true);
  });

  test("has the same ids at every opening", () => {
    const [first, second] = [openOn(realDisk, file), openOn(realDisk, file)];
    expect(idsOf(first.log)).toEqual(idsOf(second.log));
    first.close();
    second.close();
  });

  test("after one append is a version 3 file beside the untouched original", async () => {
    const session = openOn(realDisk, file);
    const ids = idsOf(session.log);
    const { ids: made } = session.append([
      { type: "message", rest: bytesOf(',"message":{"role":"user","content":"one more"}') },
    ]);
    await session.commit();
    const texts = textsOf(session.log);
    session.close();

    const backup = `${file}.v1.bak`;
    expect(readFileSync(backup).equals(readFileSync(REAL))).toBe(true);
    expect([statSync(backup).mode & 0o777, statSync(file).mode & 0o777]).toEqual([0o640, 0o640]);

    const lines = linesOf(readFileSync(file));
    const source = linesOf(readFileSync(REAL));
    expect(lines).toHaveLength(ENTRIES + 2);
    expect(JSON.parse(lines[0])).toEqual({ ...JSON.parse(source[0]), version: 3 });
    let parentId: string | null = null;
    for (const [n, line] of lines.slice(1).entries()) {
      const entry = JSON.parse(line) as { id: string; parentId: string | null };
      expect([entry.id, entry.parentId]).toEqual([n < ENTRIES ? ids[n] : made[0], parentId]);
      // Every other byte is as it was.
      if (n < ENTRIES)
        expect(line.replace(`,"id":"${entry.id}","parentId":${JSON.stringify(parentId)}`, "")).toBe(source[n + 1]);
      parentId = entry.id;
    }

    const again = openOn(realDisk, file);
    expect([again.log.version, again.diagnostics, textsOf(again.log)]).toEqual([3, [], texts]);
    expect(textOf(again.line(ENTRIES))).toContain("one more");
    again.close();
  });
});
