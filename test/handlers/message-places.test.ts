/** Lists show the same of messages whose members are found in their bytes as of those that are parsed. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { LineValidator } from "../../src/core/json/validate.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeSegmentedStore } from "../../src/storage/v2/store.ts";
import { testEnv } from "../support/env.ts";
import { hostileMessageLine } from "../support/message-lines.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { serveHere, temporaryFolder } from "../support/server.ts";
import { beginning } from "../support/sessions.ts";
import { acrossTiers } from "../support/tiers.ts";

const HEADER = '{"type":"session","version":3,"id":"01991f6e-1f1d-7c3e-b0a4-0242ac120001","timestamp":"t","cwd":"/"}';

function lines(random: Random): Buffer[] {
  let parentId: string | null = null;
  return Array.from({ length: 60 }, (_, n) => {
    const id = n.toString(16).padStart(8, "0");
    const line = Buffer.from(hostileMessageLine(random, id, parentId));
    parentId = id;
    // A byte that is no UTF-8, within whatever is there.
    if (random.chance(0.03)) line[line.length - 1 - random.int(20)] = 0xff;
    return line;
  });
}

async function stored(kind: "jsonl" | "v2", given: readonly Buffer[]): Promise<string> {
  const path = join(temporaryFolder(), kind === "v2" ? "s.v2" : "s.jsonl");
  const text = Buffer.concat(given.flatMap((line) => [line, Buffer.from("\n")]));
  if (kind === "jsonl") writeFileSync(path, Buffer.concat([Buffer.from(`${HEADER}\n`), text]));
  else {
    const containers = makeSegmentedStore({
      disk: realDisk,
      env: testEnv(1),
      locks: noLocks,
      durability: "os",
      quarantine: join(temporaryFolder(), "quarantine"),
      containerFor: () => path,
    });
    (await containers.publish(beginning(HEADER, path), [text])).close();
  }
  return path;
}

const validator = new LineValidator();
const isAmbiguous = (line: Buffer): boolean => validator.read(line, 0, line.length) && validator.isAmbiguous;

async function shown(path: string): Promise<unknown> {
  const server = serveHere(["--session", path, "--read-only", "--events", "none"]);
  const { nodes } = await server.result("get_tree");
  const { messages } = await server.result("get_fork_messages");
  server.end();
  return { nodes, messages };
}

acrossTiers(test, [
  { kind: "jsonl", count: 1 },
  { kind: "jsonl", count: 25 },
  { kind: "v2", count: 8 },
] as const)("whatever the lines are, on $kind ($count)", async ({ kind, count }) => {
  await forSeedsAsync(count, async (random) => {
    // A container takes the first of two roles where the second is within the line.
    const isOfBoth = (line: Buffer): boolean => !line.includes(0xff) && !isAmbiguous(line);
    const usual = lines(random).filter((line) => kind === "jsonl" || isOfBoth(line));
    // Only a parser reads a line with white space in it, here after its head, which opening reads in the same way.
    const spaced = usual.map((line) => Buffer.concat([line.subarray(0, -1), Buffer.from(" "), line.subarray(-1)]));
    expect(await shown(await stored(kind, usual))).toEqual(await shown(await stored(kind, spaced)));
  });
});
