/** Shared sessions whose holders die at the worst moment, stop, lie, or hear from those who do. */

import { readdirSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { announced, QUIET, said, texts } from "../support/joining.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";

test("what a dead holder left outside the index can be read by those who join the next one", async () => {
  const place = temporaryPlace();
  const file = join(place.home, "dead.v2");
  const dead = serveHere(["--session", file, "--store", "v2", ...QUIET], { place });
  await dead.result("append", said("indexed"));
  const index = join(file, "index", readdirSync(join(file, "index"))[0]);
  const before = statSync(index).size;
  await dead.result("append", said("found"));
  await dead.finish();
  truncateSync(index, before);
  const next = serveHere(["--session", file, ...QUIET], { place });
  // It takes the lock and writes nothing.
  expect((await next.failure("append", { ...said("no"), expectedLeafId: null })).data.name).toBe("content_modified");
  await announced(file);
  const other = serveHere(["--session", file], { place });
  expect(await texts(other)).toEqual(["indexed", "found"]);
  await other.result("append", said("joined"));
  expect(await texts(next)).toEqual(["indexed", "found", "joined"]);
});
