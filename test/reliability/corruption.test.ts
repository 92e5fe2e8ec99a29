/**
 * Whatever happens to the bytes of a session file or of a container's files, the records that it did not touch are there
 * (short form; every byte in soak).
 */

import { describe, expect, test } from "vitest";
import { serveContent } from "../support/cases.ts";
import { DAMAGES, damageFiles, verify } from "../support/corruption.ts";
import { damageContainers } from "../support/corruption-v2.ts";
import { chain, fileText, headerText, id, userText } from "../support/lines.ts";
import { forSeedsAsync } from "../support/random.ts";
import { diskWith, FILE, idsOf, kindsOf, openOn, textsOf } from "../support/sessions.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

describe.each(DAMAGES)("%s", (kind) => {
  acrossTiers(test, [
    { step: 108, more: 3 },
    { step: 36, more: 8 },
  ])("costs what it touches in the last records of a file, in steps of $step, and anywhere", ({ step, more }) =>
    forSeedsAsync(1, async (random) => {
      expect(await damageFiles(random, kind, step, more)).toBeGreaterThan(more);
    }),
  );

  acrossTiers(test, [4, 1])("costs what it touches in any file of a container, in %i times the steps", (steps) =>
    forSeedsAsync(1, async (random) => {
      const step = (isSegment: boolean): number => 1 + random.int(steps * (isSegment ? 300 : 900));
      const count = await damageContainers(random, kind, { records: 3, step });
      expect(count).toBeGreaterThan(steps === 1 ? 8 : 4);
    }),
  );
});

describe("an entry glued to what a torn write left", () => {
  const hidden = userText(id(500), id(0), "hidden");
  /** Behind a head that looks right, far from the end, and no other entry asks for it. */
  const lines = [...chain(3), userText(id(3), id(2)).slice(0, -9) + hidden, ...chain(200, 4)];

  test("far from the end is found when that line is read, and nothing is said to be lost", () => {
    const session = openOn(diskWith(fileText(headerText(), ...lines)));
    expect(session.log.nodes.position(id(500))).toBe(-1);
    verify(session);
    const found = session.refresh();
    expect(found).toEqual({ positions: [3], lost: 0 });
    expect(textsOf(session.log)[3]).toBe(hidden);
    expect(session.refresh()).toBeNull();
    expect([session.leafId, session.messageCount()]).toEqual([id(203), 203]);
  });

  test("is told of to the host, and a repair keeps it", async () => {
    const { server } = serveContent(fileText(headerText(), ...lines));
    await server.result("get_entries");
    const { repaired, entryCount } = await server.result("repair_session");
    expect(repaired.length).toBeGreaterThan(0);
    expect(entryCount).toBe(204);
    const appends = server.events.filter(({ method }) => method === "session_append");
    expect(appends.map(({ params }) => [params.origin, params.entryIds])).toEqual([["foreign", [id(500)]]]);
    expect((await server.result("get_entry", { entryId: id(500) })).entry).toEqual(JSON.parse(hidden));
    expect((await server.result("verify_session")).ok).toBe(true);
  });

  test("whatever the order of its members", () => {
    const { type, ...rest } = JSON.parse(hidden);
    const odd = JSON.stringify({ ...rest, type });
    const log = openOn(diskWith(fileText(headerText(), ...chain(2), `{"type":"mess${odd}`))).log;
    expect(textsOf(log).at(-1)).toBe(odd);
  });

  test("leaves the children of the damaged one where its legible head says", () => {
    const cut = userText(id(2), id(0)).slice(0, -9);
    const session = openOn(diskWith(fileText(headerText(), ...chain(2), cut + hidden, userText(id(3), id(2)))));
    expect([...session.tree.path()].map((position) => session.idOrNull(position))).toEqual([id(0), id(3)]);
  });
});

describe("two lines with one id", () => {
  const whole = userText(id(1), id(0), "whole");
  const broken = whole.replace("whole", "wh\u0001le");

  test.each([
    ["first", [broken, whole]],
    ["last", [whole, broken]],
  ])("are the one that is whole when the %s is damaged", (_which, both) => {
    const session = openOn(diskWith(fileText(headerText(), userText(id(0), null), ...both, ...chain(100, 2))));
    expect(idsOf(session.log)).toEqual(Array.from({ length: 102 }, (_, n) => id(n)));
    expect(textsOf(session.log)[1]).toBe(whole);
    expect(kindsOf(session.log)).toEqual(["bad_line"]);
    expect(session.messageCount()).toBe(102);
  });
});

test("two entries in one line are both there, and told of", () => {
  const session = openOn(diskWith(fileText(headerText(), chain(2).join(""), ...chain(1, 2))));
  expect(textsOf(session.log)).toEqual(chain(3));
  expect(session.diagnostics).toMatchObject([{ kind: "bad_line", line: 2, salvaged: true }]);
});

test("a large line that is nothing but beginnings is given up in linear time", SWEEP, () => {
  const nested = '{"a":'.repeat(250_000);
  const content = fileText(headerText(), ...chain(2), nested, '{"type":"'.repeat(125_000), ...chain(1, 2));
  const disk = diskWith(content, FILE);
  const started = process.cpuUsage();
  const session = openOn(disk);
  const { user, system } = process.cpuUsage(started);
  expect(idsOf(session.log)).toEqual([id(0), id(1), id(2)]);
  // The search from each of its beginnings to its end would take ten minutes.
  expect((user + system) / 1e6).toBeLessThan(15);
});

test.each([
  ["a torn tail", (file: string) => `${file}{"type":"mess`],
  ["more than is read at a time", (file: string) => `${file}${userText(id(8), id(1), "x".repeat(5 << 18))}\n}{\n`],
])("repairing keeps the header as it is behind %s", async (_what, damage) => {
  const header = headerText({ extra: 1.5 });
  const disk = diskWith(damage(fileText(header, ...chain(2), "}{")));
  const session = openOn(disk);
  expect(session.repair(false).backupPath).not.toBeNull();
  const text = Buffer.from(disk.content(FILE) as Uint8Array).toString();
  expect(text.slice(0, text.indexOf("\n"))).toBe(header);
  expect(verify(openOn(disk.after())).ok).toBe(true);
});
