/**
 * What a store knows of the lines that it has just written saves time and nothing else: a session that was forked is the
 * session that a scan of its file gives.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import type { CopiedLines, Log, Store } from "../../../src/core/ports/store.ts";
import type { Session } from "../../../src/core/session/session.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { assistantText, chain, entryText, fileBytes, fileText, headerText, id, userText } from "../../support/lines.ts";
import { outcome } from "../../support/outcome.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { beginning, diskWith, FILE, FOLDER, jsonlOn, openOn, textsOf, workspaceOn } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const MARKER = { customType: "pi-session-server.leaf" };

/** A line that continues the one before it, or sometimes another. */
function randomLine(random: Random, n: number, count: number): string {
  const before = id(n - 1);
  const parent = n === 0 ? null : random.chance(0.85) ? before : id(random.int(n));
  return random.pick([
    () => userText(id(n), parent),
    () => assistantText(id(n), parent, "x".repeat(random.int(5000))),
    () => entryText("label", id(n), parent, { targetId: id(random.int(n + 1)), label: random.pick(["keep", ""]) }),
    () => entryText("label", id(n), parent, { targetId: id(random.int(count)), label: "sooner or later" }),
    () => entryText("compaction", id(n), parent, { summary: "so far", firstKeptEntryId: before, tokensBefore: 9 }),
    () => entryText("model_change", id(n), parent, { provider: "anthropic", modelId: `model ${n}` }),
    () => entryText(`kind ${random.int(3)}`, id(n), parent, { data: n }),
    () => entryText("message", id(n), parent, { message: "none" }),
    () => entryText("custom", id(n), parent, MARKER),
    () =>
      JSON.stringify({ message: { role: "user", content: "head last" }, parentId: parent, id: id(n), type: "message" }),
  ])();
}

/** Something about a line that is not as usual. */
function unusual(random: Random, line: string, n: number): string {
  return random.pick([
    () => `${line}\r`,
    () => `\n${line}`,
    () => line.replaceAll(id(n - 1), `odd ${n - 1}`),
    () => line.replaceAll(id(n), `odd~${n}`),
    () => line.replaceAll(id(n), id(n >> 1)),
    () => line.replace('"parentId":"a', '"parentId":"b'),
    () => line.replace('"parentId":"', '"parentId":"nowhere '),
    () => line.replaceAll(id(n - 1), id(n + 2)),
    () => line.slice(0, random.int(line.length)),
    () => line.replace('":', '"?'),
    () => line.replace("}", "\u0000"),
    () => `${line}${line}`,
    () => line.replace('"id":', '"_id":'),
  ])();
}

function randomSession(random: Random): string {
  // The last 64 are looked at when a file is opened.
  const count = 1 + random.int(random.pick([20, 50, 200]));
  const version = random.pick([3, 3, 3, 3, 2, 1]);
  const oddity = random.pick([0, 0, 0.02, 0.1]);
  const lines = Array.from({ length: count }, (_, n) => {
    const line = randomLine(random, n, count);
    return random.chance(oddity) ? unusual(random, line, n) : line;
  });
  const text = fileText(headerText({ version }), ...lines);
  return random.chance(0.1) ? text.slice(0, text.length - 1 - random.int(9)) : text;
}

/** What another program does to the source, of which we do not know yet. */
function meddle(random: Random, disk: FaultDisk): void {
  const fd = disk.openAppend(FILE);
  const content = disk.content(FILE) as Uint8Array;
  if (random.chance(0.7)) {
    disk.truncate(fd, 0);
    const other = random.pick(["b00000", "c00000"]);
    disk.write(fd, bytesOf(textOf(content).replaceAll(`a00000${random.int(3)}`, `${other}0`)));
  } else disk.write(fd, bytesOf(fileText(userText(id(800), null))));
  disk.close(fd);
}

/** Counts the bytes that are read of each file. */
function countReads(disk: FaultDisk): (path: string) => number {
  const paths = new Map<number, string>();
  const counts = new Map<string, number>();
  const { openRead, read } = disk;
  disk.openRead = (path) => {
    const fd = openRead.call(disk, path);
    paths.set(fd, path);
    return fd;
  };
  disk.read = (fd, ...rest) => {
    const count = read.call(disk, fd, ...rest);
    const path = paths.get(fd) as string;
    counts.set(path, (counts.get(path) ?? 0) + count);
    return count;
  };
  return (path) => counts.get(path) ?? 0;
}

const contentOf = (disk: FaultDisk, { file }: Session) => disk.content(file as string) as Uint8Array;

describe("a session that was just forked", () => {
  acrossTiers(test, [5, 12])("is the one that a scan of its file gives (%i)", async (count) => {
    await forSeedsAsync(count, async (random) => {
      const disk = diskWith(randomSession(random));
      let source = openOn(disk);
      const workspace = workspaceOn(disk, "jsonl");
      for (let generation = 0; generation < 3 && source.log.nodes.count > 0; generation++) {
        const isMeddled = generation === 0 && random.chance(0.1);
        if (isMeddled) meddle(random, disk);
        const end = random.chance(0.5) ? source.tree.leaf : random.int(source.log.nodes.count);
        let fork: Session;
        try {
          fork = await workspace.fork(source, end);
        } catch (error) {
          // What lies where lines were known to lie is not copied as if it were these.
          if (isMeddled && error instanceof Failure && error.retryable) return;
          throw error;
        }
        const copied = diskWith(contentOf(disk, fork));
        const again = jsonlOn(copied).open(FILE);
        // Damage tells of the same bytes, and what is read of them finds no more here than there.
        expect(outcome(() => fork.log)).toEqual(outcome(() => again));
        source = openOn(disk, fork.file as string);
      }
    });
  });

  test("goes on as one that was opened", async () => {
    await forSeedsAsync(4, async (random) => {
      const disk = diskWith(randomSession(random));
      const source = openOn(disk);
      const fork = await workspaceOn(disk, "jsonl").fork(source, source.tree.leaf);
      const copied = diskWith(contentOf(disk, fork));
      const again = jsonlOn(copied).open(FILE);
      const lines = chain(3, 900).map((line) => bytesOf(line));
      for (const log of [fork.log, again]) {
        log.append(lines);
        await log.commit();
      }
      expect(contentOf(disk, fork)).toEqual(copied.content(FILE));
      expect(outcome(() => fork.log)).toEqual(outcome(() => again));
    });
  });

  test("was not scanned: only labels and its end are read", async () => {
    const turns = Array.from({ length: 1500 }, (_, n) => [
      userText(id(3 * n), n === 0 ? null : id(3 * n - 1)),
      entryText("label", id(3 * n + 1), id(3 * n), { targetId: id(3 * n), label: `turn ${n}` }),
      assistantText(id(3 * n + 2), id(3 * n + 1)),
    ]);
    const disk = diskWith(fileText(headerText(), ...turns.flat()));
    const source = openOn(disk);
    const read = countReads(disk);
    const fork = await workspaceOn(disk, "jsonl").fork(source, source.tree.leaf);
    expect(fork.log.nodes.count).toBe(4500);
    expect(fork.tree.labels.size).toBe(1500);
    expect(read(fork.file as string)).toBeLessThan(contentOf(disk, fork).length / 3);
  });
});

describe("a session that was just published", () => {
  function randomContent(random: Random, log: Log): (Uint8Array | CopiedLines)[] {
    return Array.from({ length: random.int(6) }, () => {
      const own = fileBytes(...Array.from({ length: random.int(3) }, () => randomLine(random, random.int(99), 99)));
      const positions = Array.from({ length: random.int(9) }, () => random.int(log.nodes.count));
      const rising = [...new Set(positions)].sort((a, b) => a - b);
      const at = random.int(own.length);
      return random.pick<() => (Uint8Array | CopiedLines)[]>([
        () => [{ log, positions: rising }],
        () => [{ log, positions }],
        () => [fileBytes(randomLine(random, random.int(99), 99))],
        () => [own],
        () => [own.subarray(0, at), own.subarray(at)],
      ])();
    }).flat();
  }

  test("of any lines of others and of its own is what a scan of its file gives", async () => {
    await forSeedsAsync(10, async (random) => {
      const disk = diskWith(randomSession(random));
      const source = jsonlOn(disk).open(FILE);
      if (source.nodes.count === 0) return;
      const publish = jsonlOn(disk)[random.pick(["publish", "publishNow"] as const)] as Store["publish"];
      const log = await publish(beginning(), randomContent(random, source));
      const again = jsonlOn(disk.after()).open(log.file as string);
      expect(outcome(() => log)).toEqual(outcome(() => again));
    });
  });
});

describe("a large session that is published", () => {
  const text = "x".repeat(35 << 10);
  const syncedEarly = 32 << 10;
  const large = diskWith(fileText(headerText(), ...chain(3), userText(id(3), id(2), text), userText(id(4), id(3))));

  test("is whole and durable", async () => {
    const disk = large.after();
    const source = openOn(disk);
    disk.set(undefined);
    const content = [{ log: source.log, positions: [0, 1, 2, 3, 4] }];
    const file = `${FOLDER}/new.jsonl`;
    const made = await jsonlOn(disk, { syncedEarly }).publish(beginning(headerText(), file), content);
    // The medium was set to work before the end.
    expect(disk.operations.filter((name) => name === "sync")).toHaveLength(2);
    const lasting = disk.after({ names: "synced", content: "synced" });
    expect(textsOf(jsonlOn(lasting).open(file))).toEqual(textsOf(source.log));
    made.close();
  });

  test("is brought to the medium beside the writing, and holds nothing up", async () => {
    const disk = large.after();
    const source = openOn(disk);
    const { sync } = disk;
    const syncs: [beside: unknown, isWriting: boolean][] = [];
    let isWriting = true;
    function* content(): Generator<Uint8Array> {
      for (const text of textsOf(source.log)) yield bytesOf(`${text}\n`);
      isWriting = false;
    }
    disk.sync = async (fd, beside) => {
      syncs.push([beside, isWriting]);
      await sync(fd);
    };
    (await jsonlOn(disk, { syncedEarly }).publish(beginning(headerText(), `${FOLDER}/new.jsonl`), content())).close();
    expect(syncs).toEqual([
      [true, true],
      [true, false],
    ]);
  });

  test("leaves nothing behind when the medium fails under it, early or late", async () => {
    for (const failing of [1, 2]) {
      const disk = large.after();
      const source = jsonlOn(disk).open(FILE);
      const { sync } = disk;
      let syncs = 0;
      disk.sync = async (fd) => {
        if (++syncs === failing) throw Object.assign(new Error("the medium failed"), { code: "EIO" });
        return sync(fd);
      };
      const content = [{ log: source, positions: [0, 1, 2, 3, 4] }];
      await expect(
        jsonlOn(disk, { syncedEarly }).publish(beginning(headerText(), `${FOLDER}/new.jsonl`), content),
      ).rejects.toMatchObject({ name: "storage_failed" });
      source.close();
      expect(disk.paths()).toEqual([FILE]);
      expect(disk.openCount).toBe(0);
    }
  });
});
