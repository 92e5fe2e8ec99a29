/** The leaf of the conversation: kept by a move at once, and written to the file at the latest when it is left. */

import { appendFileSync, readdirSync, rmSync, statSync, truncateSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { decodeText } from "../../src/core/json/json.ts";
import { FaultDisk } from "../support/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { STORES } from "../support/hosts.ts";
import { put } from "../support/lifecycle.ts";
import { assistantText, fileText, headerText, userText } from "../support/lines.ts";
import { HereLives, imprint, isMarker, readPlainly } from "../support/proof.ts";
import type { Json, Wire } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

/** Two turns: u1 a1 u2 a2, in a file of the server's. */
async function begun(
  args: string[] = [],
  lives = new HereLives(),
): Promise<{ lives: HereLives; wire: Wire; file: string }> {
  const wire = await lives.start(args);
  const [u1, a1] = [user("one", { id: "u1" }), assistant("two", { id: "a1" })];
  const [u2, a2] = [user("three", { id: "u2" }), assistant("four", { id: "a2" })];
  for (const entry of [u1, a1, u2, a2]) await wire.result("append", { entries: [entry] });
  const { sessionFile: file } = await wire.result("get_state");
  return { lives, wire, file };
}

async function leafOf(wire: Wire): Promise<string | null> {
  return (await wire.result("get_state")).leafId;
}

/** The types of the entries that come after the two turns. */
function typesBehind(file: string): string[] {
  const entries = readPlainly(file).slice(5);
  return entries.map((entry) => (isMarker(entry) ? "marker" : entry.type));
}

acrossTiers(describe, STORES)("a move, --store %s", (store) => {
  const begunHere = () => begun(["--store", store]);

  test("keeps nobody in a session whose last entries cannot be read any more", async () => {
    const { lives, wire, file } = await begunHere();
    await wire.result("append", { entries: [user("five", { id: "u3" }), assistant("six", { id: "a3" })] });
    await wire.result("branch", { entryId: "u1" });
    await lives.kill();
    const next = await lives.start(["--session", file]);
    expect(await leafOf(next)).toBe("u1");
    const stored = store === "v2" ? join(file, "segments", readdirSync(join(file, "segments"))[0]) : file;
    truncateSync(stored, statSync(stored).size >> 1);
    const { sessionFile } = await next.result("new_session");
    expect(sessionFile).not.toBe(file);
    await lives.end();
    expect(await lives.done).toBe(0);
  });

  test("is written down as one marker when the session is left, and no reader sees it", async () => {
    const { lives, wire, file } = await begunHere();
    await wire.result("branch", { entryId: "a1" });
    const readState = async (): Promise<Json> => [
      ...[await wire.result("get_entries"), await wire.result("get_fork_messages")],
      ...[await wire.result("get_tree", { format: "flat" }), await wire.result("get_tree", { format: "nested" })],
      ...[await wire.result("get_entry", { entryId: "a1" }), await wire.result("get_session_stats")],
    ];
    const before = await readState();
    const { entryCount, branchCount } = await wire.result("get_state");
    await wire.result("new_session");
    expect(typesBehind(file)).toEqual(["marker"]);
    const marker = readPlainly(file).at(-1);
    expect(marker).toMatchObject({ type: "custom", customType: "pi-session-server.leaf", parentId: "a1" });
    const left = imprint(file);
    await wire.result("switch_session", { sessionPath: file });
    expect(await wire.result("get_state")).toMatchObject({ entryCount, branchCount, leafId: "a1" });
    expect(await readState()).toEqual(before);
    for (const method of ["get_entry", "branch", "fork"])
      expect((await wire.failure(method, { entryId: marker.id })).data.name).toBe("entry_not_found");
    expect((await wire.failure("get_entries", { since: marker.id })).data.name).toBe("entry_not_found");
    // Leaving again writes nothing, for the file has the position.
    await lives.end();
    expect(imprint(file)).toEqual(left);
  });

  test("is left in order by clone, fork, shutdown and exit alike", async () => {
    for (const method of ["clone", "fork", "shutdown", "exit"]) {
      const { lives, wire, file } = await begunHere();
      await wire.result("branch", { entryId: "u2" });
      if (method === "exit") wire.send({ jsonrpc: "2.0", method });
      else await wire.result(method, method === "fork" ? { entryId: "u1" } : {});
      await lives.end();
      expect(typesBehind(file), method).toEqual(["marker"]);
    }
  });

  test("in a session open for reading, or in another one, moves nobody there", async () => {
    const { lives, wire, file } = await begunHere();
    const { sessionFile: cloned } = await wire.result("clone");
    await wire.result("branch", { entryId: "u1" });
    await lives.end();
    const before = imprint(file);
    const reader = await lives.start(["--session", file, "--read-only"]);
    expect(await reader.result("branch", { entryId: "u1" })).toMatchObject({ leafId: "u1", durable: false });
    expect(await leafOf(reader)).toBe("u1");
    await lives.end();
    expect(imprint(file)).toEqual(before);
    for (const [session, leaf] of [
      [file, "a2"],
      [cloned, "u1"],
    ]) {
      expect(await leafOf(await lives.start(["--session", session]))).toBe(leaf);
      await lives.end();
    }
  });
});

test.each([
  ["set_label", { entryId: "u2", label: "x" }, "label"],
  ["append", { entries: [{ type: "session_info", name: "x", parentId: "u1" }] }, "session_info"],
  ["branch", { entryId: "u1", label: "x" }, "label"],
])(
  "after a move, %s of a label or a name goes out in one write with a marker before it",
  async (method, params: Json, type) => {
    const disk = new FaultDisk();
    const { lives, wire, file } = await begun(["--session-dir", "/sessions"], new HereLives({ disk }));
    await wire.result("branch", { entryId: "a1" });
    disk.set(undefined);
    await wire.result(method, params);
    const leafId = await leafOf(wire);
    // And one to the record of operations.
    expect(disk.operations.filter((operation) => operation === "write")).toHaveLength(2);
    await lives.kill();
    const lines = decodeText(disk.content(file) as Uint8Array)
      .trimEnd()
      .split("\n");
    const [marker, other] = lines.slice(5).map((line) => JSON.parse(line));
    expect([lines.length, isMarker(marker)]).toEqual([7, true]);
    expect(other).toMatchObject({ type, parentId: marker.parentId });
    // Without our record the file alone shows the same.
    const [record] = disk.paths().filter((path) => path.includes("leaves"));
    if (record) disk.remove(record);
    const next = await lives.start(["--session", file]);
    expect(await next.result("get_state")).toMatchObject({ leafId, diagnostics: [] });
  },
);

test("a marker that another program continues from while we have it open is an ordinary node as soon as that is seen", async () => {
  const { wire, file } = await begun();
  await wire.result("branch", { entryId: "a1" });
  await wire.result("set_label", { entryId: "u1", label: "x" });
  const { id: entryId } = readPlainly(file).find(isMarker) as Json;
  appendFileSync(file, fileText(userText("f1", entryId, "foreign")));
  await wire.result("set_label", { entryId: "u1", label: "y" });
  const { nodes } = await wire.result("get_tree", { format: "flat" });
  expect(nodes.find(({ id }: Json) => id === entryId)).toMatchObject({ type: "custom" });
  expect((await wire.result("get_entry", { entryId: "a1" })).childIds).toContain(entryId);
  expect((await wire.result("branch", { entryId })).leafId).toBe(entryId);
});

test("a leaf in the header is overruled by a move of ours, and a move back to it leaves the file alone", async () => {
  const lives = new HereLives();
  const body = [userText("u1", null), assistantText("a1", "u1"), userText("u2", "a1")];
  const file = put(join(lives.place.home, "named.jsonl"), fileText(headerText({ leafId: "u1" }), ...body));
  const before = imprint(file);
  for (const [found, target] of [
    ["u1", "u2"],
    ["u2", "u1"],
  ]) {
    const wire = await lives.start(["--session", file]);
    expect(await leafOf(wire)).toBe(found);
    await wire.result("branch", { entryId: target });
    await lives[target === "u2" ? "kill" : "end"]();
  }
  expect(imprint(file)).toEqual(before);
  await (await lives.start(["--session", file])).result("branch", { entryId: "a1" });
  await lives.end();
  expect(readPlainly(file)[0].leafId).toBeUndefined();
  rmSync(lives.place.state, { recursive: true, force: true });
  expect(await leafOf(await lives.start(["--session", file]))).toBe("a1");
});

// Entries count, not times: a write that was torn behind the acknowledged ones changes these, too.
test.each([
  ["was only touched", (file: string) => utimesSync(file, 1, 1)],
  ["only got a torn write", (file: string) => appendFileSync(file, '{"type":"mess')],
])("a record of ours counts still when the file %s, and nobody else can read it", async (_what, change) => {
  const { lives, wire, file } = await begun();
  await wire.result("branch", { entryId: "u1" });
  const folder = join(lives.place.state, "leaves");
  const modes = [folder, join(folder, readdirSync(folder)[0])].map((path) => statSync(path).mode & 0o777);
  expect(modes).toEqual([0o700, 0o600]);
  await lives.kill();
  change(file);
  expect(await leafOf(await lives.start(["--session", file]))).toBe("u1");
});
