/** Many servers at once on the same sessions and the same state folder. */

import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { randomLine, randomSession, readHits, readList, sessionFiles } from "../support/catalog.ts";
import { forSeedsAsync } from "../support/random.ts";
import { type Json, spawnServer, temporaryPlace } from "../support/server.ts";

test("8 processes index and list at once: no row is lost, nobody sees an error", async () => {
  await forSeedsAsync(1, async (random) => {
    const place = temporaryPlace();
    const root = join(place.home, "sessions");
    const withRoot = { ...place, variables: { ...place.variables, PI_SESSIONS_DIR: root } };
    for (let n = 0; n < 150; n++) {
      const folder = join(root, `--p${n % 7}--`);
      mkdirSync(folder, { recursive: true });
      const { id, text } = randomSession(random, `/p${n % 7}`);
      writeFileSync(join(folder, `2026-01-24T16-22-26-831Z_${id}.jsonl`), text);
    }
    const servers = Array.from({ length: 8 }, () =>
      spawnServer(["--no-session", "--events", "none"], "lines", withRoot),
    );
    const list = { headerOnly: true };
    const check = async (): Promise<void> => {
      const paths = readList(root).map(({ path }) => path);
      const hits = readHits(root, ["token"]);
      await Promise.all(
        servers.map(async (server) => {
          const { sessions, total } = await server.result("list_sessions", list);
          expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toEqual(paths);
          expect(total).toBe(paths.length);
          const found = await server.result("search_sessions", { query: "token", limit: 100_000 });
          expect(found.hits.map(({ sessionPath, entryId }: Json) => `${sessionPath} ${entryId}`).sort()).toEqual(hits);
        }),
      );
    };
    await check();
    for (let round = 0; round < 3; round++) {
      for (const file of sessionFiles(root))
        if (random.chance(0.3)) appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12));
      await check();
    }
    for (const server of servers) expect(await server.finish()).toMatchObject({ status: 0 });
    for (const server of servers) expect(server.stderr).toBe("");
    // What they left behind is whole.
    const after = spawnServer(["--no-session", "--events", "none"], "lines", withRoot);
    const { sessions } = await after.result("list_sessions", list);
    expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toEqual(readList(root).map(({ path }) => path));
  });
});
