/** Where the conversation stands: kept by a move at once, told by the file at the latest when it is left. */

import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { FaultDisk } from "../support/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { assistantText, entryText, fileText, headerText, userText } from "../support/lines.ts";
import { HereLives, imprint, isMarker, readPlainly, SpawnedLives } from "../support/proof.ts";
import type { Json, Wire } from "../support/server.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

/** Two turns: u1 a1 u2 a2, in a file of the server's. */
async function begun(
  lives = new HereLives(),
  args: string[] = [],
): Promise<{ lives: HereLives; wire: Wire; file: string }> {
  const wire = await lives.start(args);
  const entries = [
    user("one", { id: "u1" }),
    assistant("two", { id: "a1" }),
    user("three", { id: "u2" }),
    assistant("four", { id: "a2" }),
  ];
  for (const entry of entries) await wire.result("append", { entries: [entry] });
  const { sessionFile: file } = await wire.result("get_state");
  return { lives, wire, file };
}

/** A file of another program's making. */
function written(lives: HereLives, ...lines: string[]): string {
  const folder = join(lives.place.home, "elsewhere");
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "session.jsonl");
  writeFileSync(file, fileText(...lines));
  return file;
}

async function leafOf(wire: Wire): Promise<string | null> {
  return (await wire.result("get_state")).leafId;
}

async function diagnosed(wire: Wire): Promise<string[]> {
  return (await wire.result("get_state")).diagnostics.map(({ kind }: Json) => kind);
}

function typesIn(file: string): string[] {
  return readPlainly(file)
    .slice(1)
    .map((entry) => (isMarker(entry) ? "marker" : entry.type));
}

acrossTiers(describe, ["jsonl", "v2"] as const)("a move, --store %s", (store) => {
  const begunHere = () => begun(new HereLives(), ["--store", store]);

  test("survives kill -9 of the program, and not a byte of the file changes", SWEEP, async () => {
    const lives = new SpawnedLives();
    let wire = await lives.start(["--store", store]);
    await wire.result("append", { entries: [user("one", { id: "u1" }), user("two", { id: "u2" })] });
    const { sessionFile: file } = await wire.result("get_state");
    const before = imprint(file);
    for (const target of ["u1", null, "u2", "u1"]) {
      expect(await wire.result("branch", { entryId: target })).toMatchObject({ leafId: target, durable: true });
      await lives.kill();
      wire = await lives.start(["--session", file]);
      expect(await leafOf(wire)).toBe(target);
    }
    expect(imprint(file)).toEqual(before);
    await lives.end();
  });

  test("keeps nobody in a session whose last entries cannot be read any more", async () => {
    const { lives, wire, file } = await begun(new HereLives(), ["--store", store]);
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
    const told = {
      entries: await wire.result("get_entries"),
      flat: await wire.result("get_tree", { format: "flat" }),
      nested: await wire.result("get_tree", { format: "nested" }),
      forks: await wire.result("get_fork_messages"),
      entry: await wire.result("get_entry", { entryId: "a1" }),
      stats: await wire.result("get_session_stats"),
    };
    const { entryCount, branchCount } = await wire.result("get_state");
    await wire.result("new_session");
    expect(typesIn(file)).toEqual(["message", "message", "message", "message", "marker"]);
    const marker = readPlainly(file).at(-1);
    expect(marker).toMatchObject({ type: "custom", customType: "pi-session-server.leaf", parentId: "a1" });
    const before = imprint(file);
    await wire.result("switch_session", { sessionPath: file });
    expect(await leafOf(wire)).toBe("a1");
    expect({
      entries: await wire.result("get_entries"),
      flat: await wire.result("get_tree", { format: "flat" }),
      nested: await wire.result("get_tree", { format: "nested" }),
      forks: await wire.result("get_fork_messages"),
      entry: await wire.result("get_entry", { entryId: "a1" }),
      stats: await wire.result("get_session_stats"),
    }).toEqual(told);
    expect(await wire.result("get_state")).toMatchObject({ entryCount, branchCount });
    for (const method of ["get_entry", "branch", "fork"])
      expect((await wire.failure(method, { entryId: marker.id })).data.name).toBe("entry_not_found");
    expect((await wire.failure("get_entries", { since: marker.id })).data.name).toBe("entry_not_found");
    // Leaving again writes nothing, for the file tells the position.
    await lives.end();
    expect(imprint(file)).toEqual(before);
  });

  test("before the first entry is a marker that says so", async () => {
    const { lives, wire, file } = await begunHere();
    await wire.result("branch", { entryId: "u1", position: "before" });
    await lives.end();
    expect(readPlainly(file).at(-1)).toMatchObject({ parentId: null, data: { leafId: null } });
    rmSync(lives.place.state, { recursive: true, force: true });
    const next = await lives.start(["--session", file]);
    expect(await next.result("get_state")).toMatchObject({ leafId: null, messageCount: 0, entryCount: 4 });
    const { leafId } = await next.result("append", { entries: [user("again")] });
    expect((await next.result("get_path")).entries.map(({ id }: Json) => id)).toEqual([leafId]);
    expect((await next.result("get_entry", { entryId: leafId })).entry.parentId).toBeNull();
  });

  test("back to where the file leads anyway leaves no marker", async () => {
    const { lives, wire, file } = await begunHere();
    const before = imprint(file);
    await wire.result("branch", { entryId: "u1" });
    await wire.result("branch", { entryId: "a2" });
    await wire.result("new_session");
    expect(imprint(file)).toEqual(before);
    await wire.result("switch_session", { sessionPath: file });
    expect(await leafOf(wire)).toBe("a2");
    await lives.end();
    expect(imprint(file)).toEqual(before);
  });

  test("each time it is left adds one marker at most, and the last one counts", async () => {
    const { lives, file } = await begunHere();
    await lives.end();
    for (const target of ["u1", "u2", "u2", null, "a1"]) {
      const next = await lives.start(["--session", file]);
      for (const detour of ["a2", "u1", target]) await next.result("branch", { entryId: detour });
      await lives.end();
    }
    expect(typesIn(file).filter((type) => type === "marker")).toHaveLength(4);
    rmSync(lives.place.state, { recursive: true, force: true });
    const next = await lives.start(["--session", file]);
    expect(await next.result("get_state")).toMatchObject({ leafId: "a1", entryCount: 4 });
  });

  test("is left in order by fork, clone, shutdown and the end of input alike", async () => {
    for (const [method, params] of [
      ["clone", {}],
      ["fork", { entryId: "u1" }],
      ["shutdown", {}],
      ["exit", {}],
    ] as const) {
      const { lives, wire, file } = await begunHere();
      await wire.result("branch", { entryId: "u2" });
      if (method === "exit") wire.send({ jsonrpc: "2.0", method });
      else await wire.result(method, params);
      await lives.end();
      expect(typesIn(file), method).toEqual(["message", "message", "message", "message", "marker"]);
    }
  });

  test("in a session open for reading lasts as long as the process", async () => {
    const { lives, file } = await begunHere();
    await lives.end();
    const before = imprint(file);
    const wire = await lives.start(["--session", file, "--read-only"]);
    expect(await wire.result("branch", { entryId: "u1" })).toMatchObject({ leafId: "u1", durable: false });
    expect(await leafOf(wire)).toBe("u1");
    await lives.end();
    expect(imprint(file)).toEqual(before);
    expect(await leafOf(await lives.start(["--session", file]))).toBe("a2");
  });

  test("that the host answers for does not move other sessions", async () => {
    const { lives, wire, file } = await begunHere();
    const { sessionFile } = await wire.result("clone");
    await wire.result("branch", { entryId: "u1" });
    await lives.kill();
    expect(await leafOf(await lives.start(["--session", file]))).toBe("a2");
    await lives.kill();
    expect(await leafOf(await lives.start(["--session", sessionFile]))).toBe("u1");
  });
});

describe("a label or a name after a move", () => {
  test.each([
    ["set_label", { entryId: "u2", label: "x" }, "label"],
    ["set_session_name", { name: "x" }, "session_info"],
    ["append", { entries: [{ type: "label", targetId: "u2", label: "x" }] }, "label"],
    ["append", { entries: [{ type: "session_info", name: "x", parentId: "u1" }] }, "session_info"],
    ["branch", { entryId: "u1", label: "x" }, "label"],
  ])("%s goes out in one write with a marker before it", async (method, params: Json, type) => {
    const disk = new FaultDisk();
    const { lives, wire, file } = await begun(new HereLives({ disk }), ["--session-dir", "/sessions"]);
    await wire.result("branch", { entryId: "a1" });
    disk.set(undefined);
    await wire.result(method, params);
    const { leafId } = await wire.result("get_state");
    // And one to the record of operations, of which an append is none.
    const writes = method === "append" ? 1 : 2;
    expect(disk.operations.filter((operation) => operation === "write").length).toBe(writes);
    await lives.kill();
    const lines = Buffer.from(disk.content(file) as Uint8Array)
      .toString("utf8")
      .trimEnd()
      .split("\n")
      .slice(5);
    const [marker, aside] = lines.map((line) => JSON.parse(line));
    expect(lines).toHaveLength(2);
    expect(isMarker(marker)).toBe(true);
    expect(aside).toMatchObject({ type, parentId: marker.parentId });
    // Without our record the file alone tells the same.
    const [record] = disk.paths().filter((path) => path.includes("leaves"));
    if (record) disk.remove(record);
    const next = await lives.start(["--session", file]);
    expect(await leafOf(next)).toBe(leafId);
    expect(await diagnosed(next)).toEqual([]);
  });

  test("at the tip moves the tip along, without a marker", async () => {
    const { lives, wire, file } = await begun();
    await wire.result("set_label", { entryId: "u1", label: "x" });
    await wire.result("set_session_name", { name: "x" });
    const leafId = await leafOf(wire);
    await lives.end();
    expect(typesIn(file).slice(4)).toEqual(["label", "session_info"]);
    rmSync(lives.place.state, { recursive: true, force: true });
    expect(await leafOf(await lives.start(["--session", file]))).toBe(leafId);
  });

  test("in the middle of an append that jumps is found again after a kill, and marked when left", async () => {
    const { lives, wire, file } = await begun();
    const { leafId } = await wire.result("append", {
      entries: [user("five"), { type: "label", targetId: "u1", label: "x", parentId: "u1" }],
    });
    await lives.kill();
    const next = await lives.start(["--session", file]);
    expect(await leafOf(next)).toBe(leafId);
    await lives.end();
    expect(typesIn(file).slice(4)).toEqual(["message", "label", "marker"]);
    rmSync(lives.place.state, { recursive: true, force: true });
    const last = await lives.start(["--session", file]);
    expect(await leafOf(last)).toBe(leafId);
    expect(await diagnosed(last)).toEqual([]);
  });
});

describe("a marker that another program continued from", () => {
  test("is an ordinary node", async () => {
    const { lives, wire, file } = await begun();
    await wire.result("branch", { entryId: "a1" });
    await lives.end();
    const marker = readPlainly(file).at(-1);
    appendFileSync(file, fileText(userText("f1", marker.id, "foreign")));
    const next = await lives.start(["--session", file]);
    expect(await next.result("get_state")).toMatchObject({ leafId: "f1", entryCount: 6 });
    const { entries } = await next.result("get_path");
    expect(entries.map(({ id }: Json) => id)).toEqual(["u1", "a1", marker.id, "f1"]);
    const { nodes } = await next.result("get_tree", { format: "flat" });
    expect(nodes.find(({ id }: Json) => id === marker.id)).toMatchObject({ type: "custom", childCount: 1 });
    expect((await next.result("get_entry", { entryId: marker.id })).childIds).toEqual(["f1"]);
    expect((await next.result("branch", { entryId: marker.id })).leafId).toBe(marker.id);
    expect((await next.result("get_messages")).messages).toHaveLength(2);
    await next.result("branch", { entryId: "f1" });
    const { sessionFile } = await next.result("clone");
    expect(readPlainly(sessionFile).map(({ id }) => id)).toContain(marker.id);
  });

  test("while we have it open becomes one as soon as that is seen", async () => {
    const { lives, wire, file } = await begun();
    await wire.result("branch", { entryId: "a1" });
    await wire.result("set_label", { entryId: "u1", label: "x" });
    const marker = readPlainly(file).find(isMarker) as Json;
    appendFileSync(file, fileText(userText("f1", marker.id, "foreign")));
    await wire.result("set_label", { entryId: "u1", label: "y" });
    const { nodes } = await wire.result("get_tree", { format: "flat" });
    expect(nodes.map(({ id }: Json) => id)).toContain(marker.id);
    expect((await wire.result("get_entry", { entryId: "a1" })).childIds).toContain(marker.id);
    await lives.end();
  });
});

describe("a leaf in the header", () => {
  const BODY = [userText("u1", null), assistantText("a1", "u1"), userText("u2", "a1"), assistantText("a2", "u2")];

  test.each([
    ["u1", "u1"],
    ["", null],
    ["nowhere", "a2"],
  ])("%j leads to %j, and opening and leaving change nothing", async (leafId, leaf) => {
    const lives = new HereLives();
    const file = written(lives, headerText({ leafId }), ...BODY);
    const before = imprint(file);
    const wire = await lives.start(["--session", file]);
    expect(await leafOf(wire)).toBe(leaf);
    await wire.result("get_messages");
    await lives.end();
    expect(imprint(file)).toEqual(before);
  });

  test.each([
    ["append", { entries: [user("five")] }],
    ["set_label", { entryId: "a2", label: "x" }],
    ["set_session_name", { name: "x" }],
  ])("goes with our first write (%s), which keeps the original", async (method, params) => {
    const lives = new HereLives();
    const file = written(lives, headerText({ leafId: "u1" }), ...BODY);
    const original = readFileSync(file);
    const { mode } = statSync(file);
    let wire = await lives.start(["--session", file]);
    await wire.result(method, params);
    const leafId = await leafOf(wire);
    await lives.kill();
    expect(readFileSync(`${file}.v3.bak`)).toEqual(original);
    expect(statSync(file).mode).toBe(mode);
    const [header, ...entries] = readPlainly(file);
    expect(header).toEqual(JSON.parse(headerText()));
    expect(entries.slice(0, 4).map((entry) => JSON.stringify(entry))).toEqual(BODY);
    expect(entries.at(-1)).toMatchObject({ id: leafId, parentId: "u1" });
    rmSync(lives.place.state, { recursive: true, force: true });
    wire = await lives.start(["--session", file]);
    expect(await leafOf(wire)).toBe(leafId);
  });

  test("is overruled by a move of ours, and a move back to it leaves the file alone", async () => {
    const lives = new HereLives();
    const file = written(lives, headerText({ leafId: "u1" }), ...BODY);
    const before = imprint(file);
    let wire = await lives.start(["--session", file]);
    await wire.result("branch", { entryId: "u2" });
    await lives.kill();
    wire = await lives.start(["--session", file]);
    expect(await leafOf(wire)).toBe("u2");
    await wire.result("branch", { entryId: "u1" });
    await lives.end();
    expect(imprint(file)).toEqual(before);
    wire = await lives.start(["--session", file]);
    await wire.result("branch", { entryId: "u2" });
    await lives.end();
    expect(readPlainly(file)[0].leafId).toBeUndefined();
    rmSync(lives.place.state, { recursive: true, force: true });
    expect(await leafOf(await lives.start(["--session", file]))).toBe("u2");
  });
});

describe("a record of ours", () => {
  test.each([
    ["another program appended", (file: string) => appendFileSync(file, fileText(userText("f1", "a1"))), "f1"],
    [
      "the file was cut",
      (file: string) => writeFileSync(file, fileText(...readFileSync(file, "utf8").split("\n").slice(0, 4))),
      "u2",
    ],
    // Entries count, not times: a write that was torn behind the acknowledged ones changes these, too.
    ["but not when it was only touched", (file: string) => utimesSync(file, 1, 1), "u1"],
    ["but not when only a torn write was added", (file: string) => appendFileSync(file, '{"type":"mess'), "u1"],
  ])("counts no more when %s", async (_what, change, leaf) => {
    const { lives, wire, file } = await begun();
    await wire.result("branch", { entryId: "u1" });
    await lives.kill();
    change(file);
    expect(await leafOf(await lives.start(["--session", file]))).toBe(leaf);
  });

  test.each(["", "{", "null", '{"leafId":"u1"}', '{"stamp":{},"leafId":5}'])(
    "that is spoiled (%j) is no record",
    async (content) => {
      const { lives, wire, file } = await begun();
      await wire.result("branch", { entryId: "u1" });
      await lives.kill();
      const folder = join(lives.place.state, "leaves");
      const names = readdirSync(folder);
      expect(names).toHaveLength(1);
      writeFileSync(join(folder, names[0]), content);
      expect(await leafOf(await lives.start(["--session", file]))).toBe("a2");
    },
  );

  test("lies in a folder of ours that nobody else can read", async () => {
    const { lives, wire } = await begun();
    await wire.result("branch", { entryId: "u1" });
    const folder = join(lives.place.state, "leaves");
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    expect(statSync(join(folder, readdirSync(folder)[0])).mode & 0o777).toBe(0o600);
  });
});

describe("labels and names at the end of a file of another program", () => {
  const BODY = [userText("u1", null), assistantText("a1", "u1"), userText("u2", "a1"), assistantText("a2", "u2")];
  const label = (id: string, parentId: string | null): string => entryText("label", id, parentId, { targetId: "u1" });
  const name = (id: string, parentId: string | null): string => entryText("session_info", id, parentId, { name: id });
  const marker = (id: string, parentId: string | null): string =>
    entryText("custom", id, parentId, { customType: "pi-session-server.leaf" });

  test.each([
    ["at the tip", [label("l1", "a2")], "l1", false],
    ["several at the tip", [label("l1", "a2"), name("n1", "l1"), label("l2", "n1")], "l2", false],
    ["on another branch", [label("l1", "u1")], "a2", true],
    ["a name on another branch", [name("n1", "u1")], "a2", true],
    ["a name as a root", [name("n1", null)], "a2", true],
    ["several on another branch", [label("l1", "u1"), name("n1", "l1")], "a2", true],
    ["first at the tip, then elsewhere", [label("l1", "a2"), name("n1", "u1")], "a2", true],
    ["first elsewhere, then at the tip", [label("l1", "u1"), name("n1", "a2")], "n1", false],
    ["behind a marker", [marker("m1", "u1"), label("l1", "u1")], "l1", false],
    ["behind a marker, on its sibling's branch", [marker("m1", "u1"), label("l1", "a2")], "l1", false],
    ["behind a marker, elsewhere", [marker("m1", "u2"), label("l1", "a1")], "u2", true],
    ["as the marker's child", [marker("m1", "u1"), label("l1", "m1")], "l1", false],
    ["behind a marker before the first", [marker("m1", null), name("n1", null)], "n1", false],
    ["a marker alone", [marker("m1", "u1")], "u1", false],
    ["two markers", [marker("m1", "u1"), marker("m2", "a1")], "a1", false],
  ])("%s", async (_what, tail, leaf, ambiguous) => {
    const lives = new HereLives();
    const file = written(lives, headerText(), ...BODY, ...tail);
    const before = imprint(file);
    const wire = await lives.start(["--session", file]);
    expect(await leafOf(wire)).toBe(leaf);
    expect(await diagnosed(wire)).toEqual(ambiguous ? ["ambiguous_leaf"] : []);
    // Asking does not change what is told.
    await wire.result("get_messages");
    expect(await diagnosed(wire)).toEqual(ambiguous ? ["ambiguous_leaf"] : []);
    await lives.end();
    expect(imprint(file)).toEqual(before);
  });

  test("a file with nothing but names stands at the last of them", async () => {
    const lives = new HereLives();
    const file = written(lives, headerText(), name("n1", null), name("n2", "n1"));
    expect(await leafOf(await lives.start(["--session", file]))).toBe("n2");
  });
});
