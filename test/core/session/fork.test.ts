/** A fork shows the model what the source showed it, and changes nothing of what it copies but references. */

import { describe, expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { Session } from "../../../src/core/session/session.ts";
import type { Workspace } from "../../../src/core/session/workspace.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { assistantText, chain, entryText, fileText, headerText, id, TIME, userText } from "../../support/lines.ts";
import { type Model, type ModelEntry, randomModel } from "../../support/model.ts";
import { forSeedsAsync } from "../../support/random.ts";
import {
  diskWith,
  FILE,
  idsOf,
  jsonlOn,
  messagesAt,
  openOn,
  sessionOf,
  textsOf,
  workspaceOn,
} from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

function memoryWorkspace(): Workspace {
  return workspaceOn(new FaultDisk(), "memory");
}

const isLabel = (entry: ModelEntry) => entry.type === "label";

/** What a fork that ends at an entry must hold, by the format's own words (session-format reference, section 4). */
function forkOf(model: Model, end: string | null): { lines: string[]; labels: { targetId: string; label: string }[] } {
  const path = model.path(end);
  const kept = path.filter((entry) => !isLabel(entry));
  const lines = kept.map((entry, n) => {
    const parentId = n === 0 ? null : kept[n - 1].id;
    let line = JSON.stringify(entry);
    if (parentId !== entry.parentId)
      line = line.replace(`"parentId":${JSON.stringify(entry.parentId)}`, `"parentId":${JSON.stringify(parentId)}`);
    const { firstKeptEntryId } = entry;
    const named = path.findIndex((other) => other.id === firstKeptEntryId);
    const at = path.indexOf(entry);
    if (entry.type === "compaction" && named >= 0 && named < at && isLabel(path[named])) {
      const next = path.slice(named).find((other) => !isLabel(other)) as ModelEntry;
      line = line.replace(`"firstKeptEntryId":"${firstKeptEntryId}"`, `"firstKeptEntryId":"${next.id}"`);
    }
    return line;
  });
  const ids = new Set(kept.map((entry) => entry.id));
  const labels = [...model.labels()].map(([targetId, { label }]) => ({ targetId, label }));
  return { lines, labels: labels.filter(({ targetId }) => ids.has(targetId)) };
}

function labelsOf(session: Session): Map<string, string> {
  const labels = new Map<string, string>();
  for (const [target, { label }] of session.tree.labels) labels.set(session.log.nodes.id(target), label);
  return labels;
}

async function checkFork(workspace: Workspace, source: Session, model: Model, end: string | null): Promise<void> {
  const position = end === null ? ROOT : source.position(end);
  const fork = await workspace.fork(source, position);
  const wanted = forkOf(model, end);
  const texts = textsOf(fork.log);
  expect(texts.slice(0, wanted.lines.length)).toEqual(wanted.lines);
  expect(labelsOf(fork)).toEqual(new Map(wanted.labels.map(({ targetId, label }) => [targetId, label])));
  expect(texts).toHaveLength(wanted.lines.length + wanted.labels.length);
  expect(messagesAt(fork), `context of the fork at ${end}`).toEqual(messagesAt(source, position));
  expect(fork.messageCount()).toBe(source.context(position).items.length);
  expect([fork.model(), fork.thinkingLevel()]).toEqual([source.model(position), source.thinkingLevel(position)]);
  for (const [n, line] of wanted.lines.entries())
    expect(messagesAt(fork, n)).toEqual(messagesAt(source, source.position((JSON.parse(line) as ModelEntry).id)));
  const ids = idsOf(fork.log);
  for (const text of texts) {
    const { parentId } = JSON.parse(text) as ModelEntry;
    if (parentId !== null) expect(ids).toContain(parentId);
  }
  expect(fork.tree.leaf).toBe(ids.length - 1);
}

describe("random sessions", () => {
  acrossTiers(test, [5, 40])("forked at every entry, and before it (of up to %i more)", async (most) => {
    await forSeedsAsync(most === 40 ? 2 : 1, async (random) => {
      const model = randomModel(random, { entries: 10 + random.int(most) });
      const source = await sessionOf(model.lines());
      const workspace = memoryWorkspace();
      for (const { id, parentId } of model.entries) {
        await checkFork(workspace, source, model, id);
        await checkFork(workspace, source, model, parentId);
      }
      expect(textsOf(source.log)).toEqual(model.lines());
    });
  });

  acrossTiers(test, [5, 40])(
    "from a file into a file, whose source stays as it is (of up to %i more)",
    async (most) => {
      await forSeedsAsync(1, async (random) => {
        const model = randomModel(random, { entries: 10 + random.int(most) });
        const disk = diskWith(fileText(headerText(), ...model.lines()));
        const before = disk.info(FILE);
        const content = disk.content(FILE);
        const workspace = workspaceOn(disk, "jsonl");
        const source = openOn(disk);
        for (const { id } of model.entries) await checkFork(workspace, source, model, id);
        expect(disk.content(FILE)).toEqual(content);
        expect(disk.info(FILE)).toEqual(before);
      });
    },
  );

  acrossTiers(test, [5, 40])("from a file into memory (of up to %i more)", async (most) => {
    await forSeedsAsync(1, async (random) => {
      const model = randomModel(random, { entries: 10 + random.int(most) });
      const workspace = memoryWorkspace();
      const source = openOn(diskWith(fileText(headerText(), ...model.lines())));
      for (const { id } of model.entries) await checkFork(workspace, source, model, id);
    });
  });

  test("a fork of a fork is the fork", async () => {
    await forSeedsAsync(2, async (random) => {
      const model = randomModel(random, { entries: 40 });
      const workspace = memoryWorkspace();
      const source = await sessionOf(model.lines());
      const once = await workspace.fork(source, source.tree.leaf);
      const twice = await workspace.fork(once, once.tree.leaf);
      const wanted = forkOf(model, source.leafId).lines;
      expect(textsOf(twice.log).slice(0, wanted.length)).toEqual(wanted);
      expect(labelsOf(twice)).toEqual(labelsOf(once));
      expect(messagesAt(twice)).toEqual(messagesAt(source));
    });
  });
});

describe("the new session", () => {
  test("before the first message is a header only", async () => {
    const disk = diskWith(fileText(headerText(), ...chain(2)));
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), ROOT);
    expect(fork.log.nodes.count).toBe(0);
    expect(fork.leafId).toBeNull();
    expect(messagesAt(fork)).toEqual([]);
    const text = Buffer.from(disk.content(fork.file as string) as Uint8Array).toString();
    expect(text.split("\n")).toHaveLength(2);
    expect(JSON.parse(text)).toMatchObject({ type: "session", version: 3 });
  });

  test("has an id of its own, the same cwd, and names the source's file as its parent", async () => {
    const disk = diskWith(fileText(headerText({ cwd: "/elsewhere" }), ...chain(2)));
    const source = openOn(disk);
    const fork = await workspaceOn(disk, "jsonl").fork(source, 1);
    expect(fork.id).not.toBe(source.id);
    expect(fork.cwd).toBe("/elsewhere");
    expect(fork.parentSession).toBe(FILE);
    expect(fork.file).not.toBe(FILE);
    expect(fork.log.persisted).toBe(true);
    expect(fork.log.durableCount).toBe(2);
  });

  test("of a session in memory names no parent, for there is no file", async () => {
    const fork = await memoryWorkspace().fork(await sessionOf(chain(2)), 1);
    expect(fork.parentSession).toBeNull();
  });

  test("takes more entries, which the source does not see", async () => {
    const source = await sessionOf(chain(3));
    const fork = await memoryWorkspace().fork(source, 1);
    const { ids } = fork.append([{ type: "message", rest: bytesOf(',"message":{"role":"user","content":"x"}') }]);
    expect(fork.log.nodes.parent(fork.position(ids[0]))).toBe(1);
    expect(source.log.nodes.count).toBe(3);
  });
});

describe("labels", () => {
  const label = (n: number, parent: number, target: number) =>
    entryText("label", id(n), id(parent), { targetId: id(target), label: `label ${n}` });

  test("leave the path, chains of them too, and what follows is linked past them", async () => {
    const lines = [
      userText(id(0), null),
      label(1, 0, 0),
      label(2, 1, 0),
      userText(id(3), id(2)),
      userText(id(4), id(3)),
    ];
    const fork = await memoryWorkspace().fork(await sessionOf(lines), 4);
    expect(textsOf(fork.log).slice(0, 3)).toEqual([lines[0], userText(id(3), id(0)), lines[4]]);
  });

  test("at the root leave a root", async () => {
    const lines = [label(0, 9, 1).replace(`"${id(9)}"`, "null"), userText(id(1), id(0))];
    const fork = await memoryWorkspace().fork(await sessionOf(lines), 1);
    expect(textsOf(fork.log)[0]).toBe(userText(id(1), null));
    expect(labelsOf(fork)).toEqual(new Map([[id(1), "label 0"]]));
  });

  test("are made again with the time at which they were set, oldest first, wherever they stood", async () => {
    const later = "2026-02-02T02:02:02.002Z";
    const lines = [
      ...chain(2),
      label(2, 1, 1),
      userText(id(3), id(1)),
      entryText("label", id(4), id(3), { targetId: id(0), label: "elsewhere", timestamp: later }),
      label(5, 4, 3),
    ];
    const source = await sessionOf(lines);
    const fork = await memoryWorkspace().fork(source, 1);
    const made = textsOf(fork.log)
      .slice(2)
      .map((text) => JSON.parse(text) as ModelEntry);
    expect(made.map(({ targetId, label, timestamp }) => [targetId, label, timestamp])).toEqual([
      [id(1), "label 2", TIME],
      [id(0), "elsewhere", later],
    ]);
    expect(made.map(({ parentId }) => parentId)).toEqual([id(1), made[0].id]);
    for (const { id } of made) expect(idsOf(source.log)).not.toContain(id);
  });

  test("that a compaction keeps from are passed on to the next entry that stays", async () => {
    const compaction = (n: number, kept: number) =>
      entryText("compaction", id(n), id(n - 1), { summary: "s", firstKeptEntryId: id(kept), tokensBefore: 1 });
    const lines = [userText(id(0), null), label(1, 0, 0), label(2, 1, 0), userText(id(3), id(2)), compaction(4, 1)];
    const fork = await memoryWorkspace().fork(await sessionOf(lines), 4);
    expect(JSON.parse(textsOf(fork.log)[2])).toMatchObject({ id: id(4), firstKeptEntryId: id(3) });
    const last = [userText(id(0), null), label(1, 0, 0), compaction(2, 1)];
    const nothing = await memoryWorkspace().fork(await sessionOf(last), 2);
    expect(JSON.parse(textsOf(nothing.log)[1])).toMatchObject({ id: id(2), firstKeptEntryId: id(2), parentId: id(0) });
    expect(messagesAt(nothing)).toHaveLength(1);
  });
});

describe("damaged sources", () => {
  test("an entry whose parent is missing becomes a root", async () => {
    const disk = diskWith(fileText(headerText(), userText(id(1), "deadbeef"), userText(id(2), id(1))));
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 1);
    expect(textsOf(fork.log)).toEqual([userText(id(1), null), userText(id(2), id(1))]);
    expect(fork.diagnostics).toEqual([]);
  });

  test("a cycle that was cut is no cycle in the fork", async () => {
    const disk = diskWith(
      fileText(headerText(), userText(id(1), id(2)), userText(id(2), id(1)), userText(id(3), id(2))),
    );
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 2);
    expect(textsOf(fork.log)).toEqual([userText(id(1), null), userText(id(2), id(1)), userText(id(3), id(2))]);
    expect(fork.diagnostics).toEqual([]);
  });

  test("duplicate ids are told apart in the fork too", async () => {
    const lines = [userText(id(1), null, "one"), userText(id(1), id(1), "two"), userText(id(3), `${id(1)}~2`)];
    const disk = diskWith(fileText(headerText(), ...lines));
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 2);
    expect(idsOf(fork.log)).toEqual([id(1), `${id(1)}~2`, id(3)]);
    expect(messagesAt(fork)).toHaveLength(3);
    expect(fork.diagnostics).toEqual([]);
  });

  test("a parent that stands later in the file comes first in the fork", async () => {
    const disk = diskWith(
      fileText(headerText(), userText(id(2), id(1)), userText(id(1), null), userText(id(3), id(2))),
    );
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 2);
    expect(textsOf(fork.log)).toEqual([userText(id(1), null), userText(id(2), id(1)), userText(id(3), id(2))]);
  });

  test("an entry without an id keeps the one it was given", async () => {
    const nameless = '{"type":"message","timestamp":"t","message":{"role":"user","content":"x"}}';
    const disk = diskWith(fileText(headerText(), nameless));
    const source = openOn(disk);
    const fork = await workspaceOn(disk, "jsonl").fork(source, 0);
    expect(fork.leafId).toBe(source.leafId);
    expect(fork.diagnostics).toEqual([]);
  });
});

describe("leaf markers", () => {
  test("that nobody continued from stay behind", async () => {
    const disk = diskWith(fileText(headerText(), ...chain(3)));
    const source = openOn(disk);
    source.moveLeaf(1);
    await source.commit();
    await source.leave();
    source.close();
    const again = openOn(disk);
    expect(again.leafId).toBe(id(1));
    const fork = await workspaceOn(disk, "jsonl").fork(again, again.tree.leaf);
    expect(idsOf(fork.log)).toEqual([id(0), id(1)]);
  });

  test("that were continued from are entries like others", async () => {
    const marker = entryText("custom", id(1), id(0), { customType: "pi-session-server.leaf" });
    const source = await sessionOf([userText(id(0), null), marker, userText(id(2), id(1))]);
    const fork = await memoryWorkspace().fork(source, 2);
    expect(idsOf(fork.log)).toEqual([id(0), id(1), id(2)]);
  });
});

test("a fork of 8,000 entries reads no bodies and copies in large pieces", async () => {
  const lines = Array.from({ length: 8000 }, (_, n) =>
    n % 2 ? assistantText(id(n), id(n - 1)) : userText(id(n), n === 0 ? null : id(n - 1)),
  );
  const disk = diskWith(fileText(headerText(), ...lines));
  const log = jsonlOn(disk).open(FILE);
  const source = new Session(log, testEnv());
  disk.set(undefined);
  const fork = await workspaceOn(disk, "jsonl").fork(source, source.tree.leaf);
  expect(fork.log.nodes.count).toBe(8000);
  expect(disk.operations.filter((operation) => operation === "write").length).toBeLessThan(8);
  expect(disk.operations.length).toBeLessThan(80);
});

test("a name that is taken is not overwritten", async () => {
  const disk = diskWith(fileText(headerText(), ...chain(2)));
  const store = jsonlOn(disk);
  const content = disk.content(FILE);
  await expect(store.publish({ ...header(), file: FILE }, [])).rejects.toMatchObject({ name: "already_exists" });
  expect(disk.content(FILE)).toEqual(content);
  expect(disk.paths()).toEqual([FILE]);
});

function header() {
  const headerLine = bytesOf(headerText());
  return { headerLine, header: JSON.parse(headerText()) };
}
