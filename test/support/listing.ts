/** Processes that list, and so index, the same sessions at the same time. */

import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { putRandomSession, randomLine, readHits, readList, sessionFiles } from "./catalog.ts";
import { entryText, fileText, headerText, id, userText } from "./lines.ts";
import type { Random } from "./random.ts";
import { type Json, runProgram, spawnServer, temporaryPlace } from "./server.ts";

/** Runs servers that each see all sessions once, without an error. */
export async function listTogether(processes: number, sessions: number): Promise<void> {
  const place = temporaryPlace();
  const folder = join(place.home, "sessions");
  mkdirSync(folder);
  for (let n = 0; n < sessions; n++) {
    const message = { role: "assistant", content: [], usage: { input: 1, cost: { total: 1 } } };
    const lines = [userText(id(n), null, `words of ${n}`), entryText("message", id(n + 1), id(n), { message })];
    const text = fileText(headerText({ id: `s${n}` }), ...lines);
    writeFileSync(join(folder, `s${n}.jsonl`), text);
  }
  const methods = ["list_sessions", "get_usage"];
  const ask = methods.map((method) => `${JSON.stringify({ jsonrpc: "2.0", id: method, method })}\n`).join("");
  const args = ["--session-dir", folder, "--events", "none"];
  const runs = await Promise.all(Array.from({ length: processes }, () => runProgram(ask, args, place)));
  for (const { stdout, stderr, status } of runs) {
    const replies = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const [list, usage] = methods.map((method) => replies.find(({ id }) => id === method).result);
    const ids = new Set(list.sessions.map(({ sessionId }: Json) => sessionId));
    expect([list.total, ids.size, stderr, status]).toEqual([sessions, sessions, "", 0]);
    expect(usage.totals).toMatchObject({ sessions, cost: sessions });
  }
}

/** Lists and searches in several processes while files grow between rounds: each agrees with the files each time. */
export async function indexTogether(random: Random, processes: number, sessions: number, rounds: number) {
  const place = temporaryPlace();
  const root = join(place.home, "sessions");
  const withRoot = { ...place, variables: { ...place.variables, PI_SESSIONS_DIR: root } };
  for (let n = 0; n < sessions; n++) putRandomSession(random, join(root, `--p${n % 7}--`), `/p${n % 7}`);
  const servers = Array.from({ length: processes }, () =>
    spawnServer(["--no-session", "--events", "none"], "lines", withRoot),
  );
  const list = { headerOnly: true };
  const check = async (): Promise<void> => {
    const paths = readList(root).map(({ path }) => path);
    const hits = readHits(root, ["token"]);
    await Promise.all(
      servers.map(async (server) => {
        const { sessions: listed, total } = await server.result("list_sessions", list);
        expect(listed.map(({ sessionPath }: Json) => sessionPath)).toEqual(paths);
        expect(total).toBe(paths.length);
        const found = await server.result("search_sessions", { query: "token", limit: 100_000 });
        expect(found.hits.map(({ sessionPath, entryId }: Json) => `${sessionPath} ${entryId}`).sort()).toEqual(hits);
      }),
    );
  };
  await check();
  for (let round = 0; round < rounds; round++) {
    for (const file of sessionFiles(root))
      if (random.chance(0.3)) appendFileSync(file, randomLine(random, random.hex(8), null, 1.77e12));
    await check();
  }
  for (const server of servers) expect(await server.finish()).toMatchObject({ status: 0 });
  for (const server of servers) expect(server.stderr).toBe("");
  // The files that they left are whole.
  const after = spawnServer(["--no-session", "--events", "none"], "lines", withRoot);
  const { sessions: listed } = await after.result("list_sessions", list);
  expect(listed.map(({ sessionPath }: Json) => sessionPath)).toEqual(readList(root).map(({ path }) => path));
}
