/**
 * A real session of version 1, from before there were ids: read, continued, and the original kept.
 *
 * @module-tag system
 */

import { chmodSync, copyFileSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { toBytes } from "../../src/core/json/json.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { linesOf } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { REFERENCE, REFERENCE_FOLDER } from "../support/programs.ts";
import { imprint } from "../support/proof.ts";
import { temporaryFolder } from "../support/server.ts";
import { idsOf, messagesAt, openOn, textsOf } from "../support/sessions.ts";

const REAL = join(REFERENCE, "data/real-session-v1.jsonl");
const ENTRIES = 1018;

describe("the real session", needs(REFERENCE_FOLDER), () => {
  test("is one chain, read without being touched, and after one append a version 3 file beside the original", async () => {
    const file = join(temporaryFolder(), "session.jsonl");
    const original = readFileSync(REAL);
    copyFileSync(REAL, file);
    chmodSync(file, 0o640);
    const before = imprint(file);
    const [session, again] = [openOn(realDisk, file), openOn(realDisk, file)];
    const { nodes } = session.log;
    const ids = idsOf(session.log);
    expect(new Set(ids).size).toBe(ENTRIES);
    expect(idsOf(again.log)).toEqual(ids);
    expect([session.diagnostics, session.log.version, nodes.count]).toEqual([[], 1, ENTRIES]);
    expect(ids.map((_, position) => nodes.parent(position))).toEqual(ids.map((_, position) => position - 1));
    expect([session.tree.leaf, session.tree.branchCount]).toEqual([ENTRIES - 1, 0]);
    expect(session.messageCount()).toBe(messagesAt(session).length);
    again.close();
    expect(imprint(file)).toEqual(before);

    const more = toBytes(',"message":{"role":"user","content":"one more"}');
    const { ids: made } = session.append([{ type: "message", rest: more }]);
    await session.commit();
    const texts = textsOf(session.log);
    session.close();
    const backup = `${file}.v1.bak`;
    expect(readFileSync(backup).equals(original)).toBe(true);
    expect([statSync(backup).mode & 0o777, statSync(file).mode & 0o777]).toEqual([0o640, 0o640]);
    const [header, ...lines] = linesOf(readFileSync(file));
    const [oldHeader, ...old] = linesOf(original);
    expect(JSON.parse(header)).toEqual({ ...JSON.parse(oldHeader), version: 3 });
    let parentId: string | null = null;
    const newIds = [...ids, ...made];
    expect(lines).toHaveLength(newIds.length);
    for (const [n, line] of lines.entries()) {
      expect(JSON.parse(line)).toMatchObject({ id: newIds[n], parentId });
      // Every other byte is as it was.
      if (n < ENTRIES)
        expect(line.replace(`,"id":"${ids[n]}","parentId":${JSON.stringify(parentId)}`, "")).toBe(old[n]);
      parentId = newIds[n];
    }
    const next = openOn(realDisk, file);
    expect([next.log.version, next.diagnostics, textsOf(next.log)]).toEqual([3, [], texts]);
    next.close();
  });
});
