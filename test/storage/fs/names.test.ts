/** Names of files that are there for a moment. */

import { basename } from "node:path";
import { expect, test, vi } from "vitest";
import { temporaryName } from "../../../src/storage/fs/disk.ts";
import { stagingName } from "../../../src/storage/fs/staging.ts";

test("two processes of one pid, which pid namespaces have, never make the same name", async () => {
  const ours = Array.from({ length: 20 }, () => [temporaryName("/a/b"), stagingName("/a/c.v2")]).flat();
  vi.resetModules();
  const disk = await import("../../../src/storage/fs/disk.ts");
  const tree = await import("../../../src/storage/fs/staging.ts");
  const theirs = Array.from({ length: 20 }, () => [disk.temporaryName("/a/b"), tree.stagingName("/a/c.v2")]).flat();
  expect(new Set([...ours, ...theirs]).size).toBe(80);
  for (const name of [...ours, ...theirs]) expect(basename(name)).toContain(`.${process.pid}-`);
});
