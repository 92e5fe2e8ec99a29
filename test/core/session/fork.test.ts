/** A fork shows the model the same as the source, and only changes references in its copies. */

import { describe, expect, test } from "vitest";
import { Session } from "../../../src/core/session/session.ts";
import type { Workspace } from "../../../src/core/session/workspace.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, entryText, fileText, headerText, id, linesOf, TIME } from "../../support/lines.ts";
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
import { sketch } from "../../support/sketch.ts";
import { acrossTiers } from "../../support/tiers.ts";

function memoryWorkspace(): Workspace {
  return workspaceOn(new FaultDisk(), "memory");
}

const isLabel = (entry: ModelEntry) => entry.type === "label";

/** Returns the entries of a fork that ends at an entry, by the format's words (session-format reference, section 4). */
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
  for (const [from, to] of [
    ["memory", "memory"],
    ["a file", "jsonl"],
    ["a file", "memory"],
  ] as const)
    acrossTiers(test, [5, 40])(
      `from ${from} into ${to}, at every entry, whose source stays (of up to %i more)`,
      (most) =>
        forSeedsAsync(from === "memory" && most === 40 ? 2 : 1, async (random) => {
          const model = randomModel(random, { entries: 10 + random.int(most) });
          const disk = diskWith(fileText(headerText(), ...model.lines()));
          const before = [disk.info(FILE), disk.content(FILE)];
          const source = from === "memory" ? await sessionOf(model.lines()) : openOn(disk);
          const workspace = workspaceOn(disk, to);
          for (const { id, parentId } of model.entries) {
            await checkFork(workspace, source, model, id);
            if (from === "memory") await checkFork(workspace, source, model, parentId);
          }
          expect(textsOf(source.log)).toEqual(model.lines());
          expect([disk.info(FILE), disk.content(FILE)]).toEqual(before);
        }),
    );
});

/** Returns the ids and parents in the file of a fork at the leaf, as a sketch, and its faults. */
async function forked(source: string): Promise<[string, readonly unknown[]]> {
  const disk = diskWith(fileText(headerText(), ...sketch(source)));
  const session = openOn(disk);
  const fork = await workspaceOn(disk, "jsonl").fork(session, session.tree.leaf);
  const numberOf = (own: string | null): string =>
    own === null ? "-" : own.replace(/^a[0-9a-f]{7}/, (hex) => String(Number.parseInt(hex, 16) - 0xa0000000));
  const lines = linesOf(disk.content(fork.file as string) as Uint8Array).slice(1);
  const shown = lines.map((text) => JSON.parse(text) as ModelEntry);
  const reported = shown
    .filter((entry) => !isLabel(entry))
    .map(({ id, parentId, firstKeptEntryId: kept }) =>
      [`${numberOf(id)}<${numberOf(parentId)}`, ...(kept ? [numberOf(kept as string)] : [])].join(":"),
    );
  return [reported.join(" "), fork.diagnostics];
}

test.each([
  ["labels leave the path, chains of them too, and what follows is linked past them", "0 L1:0 L2:0 3 4", "0<- 3<0 4<3"],
  ["a label at the root leaves a root", "L0:1 1<0", "1<-"],
  ["a label that a compaction keeps from is passed on", "0 L1:0 L2:0 3 C4:1", "0<- 3<0 4<3:3"],
  ["where nothing follows that label, the compaction keeps nothing", "0 L1:0 C2:1", "0<- 2<0:2"],
  ["an entry whose parent is missing becomes a root", "1<deadbeef 2", "1<- 2<1"],
  ["a cycle that was cut is no cycle in the fork", "1<2 2<1 3<2", "1<- 2<1 3<2"],
  ["duplicate ids are told apart in the fork too", "1 1<1 3<a0000001~2", "1<- 1~2<1 3<1~2"],
  ["a parent that stands later in the file comes first in the fork", "2<1 1<- 3<2", "1<- 2<1 3<2"],
  ["a leaf marker that nobody continued from stays behind", "0 1 2 M3<1", "0<- 1<0"],
  ["a leaf marker that was continued from is an entry like others", "0 M1 2", "0<- 1<0 2<1"],
])("%s", async (_, lines, wanted) => {
  expect(await forked(lines)).toEqual([wanted, []]);
});

test("labels are made again with the time at which they were set, oldest first, wherever they stood", async () => {
  const later = "2026-02-02T02:02:02.002Z";
  const elsewhere = entryText("label", id(4), id(3), { targetId: id(0), label: "elsewhere", timestamp: later });
  const source = await sessionOf([...sketch("0 1 L2:1 3<1"), elsewhere, ...sketch("L5<4:3")]);
  const fork = await memoryWorkspace().fork(source, 1);
  const made = textsOf(fork.log)
    .slice(2)
    .map((text) => JSON.parse(text) as ModelEntry);
  expect(made.map(({ targetId, label, timestamp }) => [targetId, label, timestamp])).toEqual([
    [id(1), "here", TIME],
    [id(0), "elsewhere", later],
  ]);
  expect(made.map(({ parentId }) => parentId)).toEqual([id(1), made[0].id]);
  for (const { id } of made) expect(idsOf(source.log)).not.toContain(id);
});

test("an entry without an id keeps the one it was given", async () => {
  const nameless = '{"type":"message","timestamp":"t","message":{"role":"user","content":"x"}}';
  const disk = diskWith(fileText(headerText(), nameless));
  const source = openOn(disk);
  const fork = await workspaceOn(disk, "jsonl").fork(source, 0);
  expect(fork.leafId).toBe(source.leafId);
  expect(fork.diagnostics).toEqual([]);
});

test("a fork of 8,000 entries reads no bodies and copies in large pieces", async () => {
  const disk = diskWith(fileText(headerText(), ...chain(8000)));
  const log = jsonlOn(disk).open(FILE);
  const source = new Session(log, testEnv());
  disk.set(undefined);
  const fork = await workspaceOn(disk, "jsonl").fork(source, source.tree.leaf);
  expect(fork.log.nodes.count).toBe(8000);
  expect(disk.operations.filter((operation) => operation === "write").length).toBeLessThan(8);
  expect(disk.operations.length).toBeLessThan(80);
});
