/** Processes that list, and so index, the same sessions at the same time. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { fileText, headerText, id, userText } from "./lines.ts";
import { type Json, runProgram, temporaryPlace } from "./server.ts";

/** Each of them sees all sessions once, and nobody is told of an error. */
export async function listTogether(processes: number, sessions: number): Promise<void> {
  const place = temporaryPlace();
  const folder = join(place.home, "sessions");
  mkdirSync(folder);
  for (let n = 0; n < sessions; n++) {
    const text = fileText(headerText({ id: `s${n}` }), userText(id(n), null, `words of ${n}`));
    writeFileSync(join(folder, `s${n}.jsonl`), text);
  }
  const list = `${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "list_sessions" })}\n`;
  const args = ["--session-dir", folder, "--events", "none"];
  const runs = await Promise.all(Array.from({ length: processes }, () => runProgram(list, args, place)));
  for (const { stdout, stderr, status } of runs) {
    const { result } = JSON.parse(stdout);
    const ids = new Set(result.sessions.map(({ sessionId }: Json) => sessionId));
    expect([result.total, ids.size, stderr, status]).toEqual([sessions, sessions, "", 0]);
  }
}
