/** Sessions in Session Store V2 containers over the wire: nothing a host sees tells them from session files. */

import { readdirSync, renameSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { type Json, serveHere, spawnServer, temporaryPlace, type Wire } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";
import { faultsOf, storedText } from "../support/v2.ts";

/** A conversation with a branch, a label, a name and a compaction; answers all that reads of it say. */
async function converse(wire: Wire): Promise<Json> {
  await wire.result("set_session_name", { name: "a talk" });
  const { entryIds: first } = await wire.result("append", { entries: [user("one"), assistant("two"), user("three")] });
  await wire.result("branch", { entryId: first[1] });
  const { entryIds: second } = await wire.result("append", { entries: [user("another"), assistant("way")] });
  await wire.result("set_label", { entryId: first[0], label: "begin" });
  await wire.result("compact_append", { summary: "what was", firstKeptEntryId: second[0], tokensBefore: 100 });
  return tellings(wire);
}

async function tellings(wire: Wire): Promise<Json> {
  const { sessionFile, sessionId, leafId, entryCount, sessionName, diagnostics } = await wire.result("get_state");
  return {
    state: { sessionFile, sessionId, leafId, entryCount, sessionName, diagnostics },
    messages: await wire.result("get_messages"),
    tree: await wire.result("get_tree"),
    entries: await wire.result("get_entries"),
  };
}

test(
  "a container is made, written, forked, killed and opened again by path, by id and as the latest",
  SYSTEM,
  async () => {
    const place = temporaryPlace();
    const server = spawnServer(["--store", "v2"], "lines", place);
    const before = await converse(server);
    const { sessionFile, sessionId } = before.state;
    expect([sessionFile.endsWith(`${sessionId}.v2`), statSync(sessionFile).mode & 0o777]).toEqual([true, 0o700]);
    server.process.kill("SIGKILL");
    await server.exit;
    // All was answered, so all is there: what the files alone say, and what the next process says.
    const ids = storedText(realDisk, sessionFile)
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line).id);
    expect(ids.slice(1)).toEqual(before.entries.entries.map(({ id }: Json) => id));
    for (const args of [...[sessionFile, sessionId, sessionId.slice(0, 20)].map((name) => ["--session", name]), ["-c"]]) {
      const again = serveHere(["--store", "v2", ...args], { place });
      expect(await tellings(again), args.join(" ")).toEqual(before);
      await again.finish();
    }
    // A host that asks for other sessions opens this one all the same.
    const other = serveHere(["--session", sessionFile], { place });
    await other.result("append", { entries: [user("go on")] });
    const [{ entryId }] = (await other.result("get_fork_messages")).messages;
    expect((await other.result("fork", { entryId })).cancelled ?? false).toBe(false);
    await other.finish();
    expect(faultsOf(realDisk, sessionFile, true)).toEqual([]);
    const left = readdirSync(dirname(sessionFile)).filter((name) => name.startsWith("."));
    expect(left).toEqual([]);
  },
);

test("a fork and a clone of a container are containers, and those of a session file, too", async () => {
  const place = temporaryPlace();
  const jsonl = serveHere([], { place });
  const { state: plain } = await converse(jsonl);
  await jsonl.finish();
  const server = serveHere(["--store", "v2", "--session", plain.sessionFile], { place });
  const told = await tellings(server);
  for (let times = 0; times < 2; times++) {
    await server.result("clone");
    const cloned = await tellings(server);
    expect(cloned.state.sessionFile).toMatch(/\.v2$/);
    expect(cloned.messages).toEqual(told.messages);
    expect(faultsOf(realDisk, cloned.state.sessionFile)).toEqual([]);
  }
  await server.finish();
});

test("what is no container of ours is not opened, and stays as it is", async () => {
  const server = serveHere(["--store", "v2"]);
  const { state } = await converse(server);
  const { data } = await server.failure("switch_session", { sessionPath: join(dirname(state.sessionFile), "x.v2") });
  expect(data.name).toBe("session_not_found");
  expect((await server.result("get_state")).sessionId).toBe(state.sessionId);
});

test("a container that a cut-off repair left under the name of its backup is opened by the session's path", async () => {
  const place = temporaryPlace();
  const first = serveHere(["--store", "v2"], { place });
  const { state } = await converse(first);
  await first.finish();
  renameSync(state.sessionFile, `${state.sessionFile}.damaged.bak`);
  const server = serveHere(["--session", state.sessionFile], { place });
  expect(await server.result("get_state")).toMatchObject({ entryCount: state.entryCount, leafId: state.leafId });
});

const APPENDED = [
  { durability: "sync", times: 2 },
  { durability: "sync", times: 7 },
  { durability: "os", times: 7 },
];

acrossTiers(test, APPENDED)(
  "with --durability $durability a checkpoint is made whenever so much was appended, $times times",
  async ({ durability, times }) => {
    const server = serveHere(["--store", "v2", "--events", "none", "--durability", durability]);
    const made = [];
    for (let n = 0; n < times; n++) {
      await server.result("append", { entries: Array.from({ length: 1024 }, (_, i) => user(`${n} ${i}`)) });
      const { sessionFile } = await server.result("get_state");
      made.push(readdirSync(join(sessionFile, "checkpoints")).length);
    }
    expect(made).toEqual([0, 1, 1, 2, 2, 3, 3].slice(0, times));
  },
);
