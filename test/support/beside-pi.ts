/**
 * kill -9 in the middle of migrations, rollbacks and undos, next to a program that knows no pointer: it opens the session
 * file by its name, if it is there, and appends to it.
 */

import { closeSync, constants, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { chain, fileText, headerText, SESSION, userText } from "./lines.ts";
import { SpawnedLives } from "./proof.ts";
import type { Random } from "./random.ts";
import type { Json } from "./server.ts";

/** So many that an operation takes some tens of milliseconds. */
const ENTRIES = 400;

/**
 * Kills; kills after which both the file and the container were there under their names (`inTheMiddle`) or a diagnostic
 * named a line that was not in the session yet; and lines whose write the other program reported as done.
 */
type Kills = Record<"kills" | "inTheMiddle" | "named" | "written", number>;

/** Appends one entry as the other program does; returns its id, or undefined where the file is not there. */
function appendOther(file: string, random: Random): string | undefined {
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDWR | constants.O_APPEND);
  } catch {
    return undefined;
  }
  try {
    // By the descriptor: the server may give the file another name at any moment.
    const ids = [...readFileSync(fd, "utf8").matchAll(/"id":"([0-9a-f]{8})"/g)];
    const id = random.hex(8);
    writeSync(fd, `${userText(id, ids.at(-1)?.[1] ?? null)}\n`);
    return id;
  } finally {
    closeSync(fd);
  }
}

/** Kills a server so many times, and checks after each that there is one session, which has every line once. */
export async function killOther(random: Random, kills: number): Promise<Kills> {
  const lives = new SpawnedLives();
  const folder = join(lives.place.home, "sessions");
  await mkdir(folder);
  const file = join(folder, `2026-01-24T16-22-26-831Z_${SESSION}.jsonl`);
  writeFileSync(file, fileText(headerText(), ...chain(ENTRIES)));
  const args = ["--session-dir", folder, "--session", SESSION];
  const written = new Set<string>();
  let [inTheMiddle, named] = [0, 0];
  for (let kill = 1; kill <= kills; kill++) {
    let server = await lives.start(args);
    const { active } = await server.result("migration_status");
    const command = active === "native_v2" ? random.pick(["rollback_migration", "undo"]) : "migrate_session";
    const answer = server.request(command).catch(() => undefined);
    const [before, after] = [random.int(120), random.int(40)];
    const write = (): void => {
      const id = random.chance(0.5) ? appendOther(file, random) : undefined;
      if (id !== undefined) written.add(id);
    };
    await Promise.race([answer, sleep(before)]);
    write();
    await sleep(random.chance(0.5) ? after : 0);
    await lives.kill();
    write();
    server = await lives.start(args);
    const { sessions } = await server.result("list_sessions");
    const { diagnostics } = await server.result("get_state");
    const { interrupted } = await server.result("migration_status");
    if (interrupted) inTheMiddle++;
    // A line that came while the file was moved away is named, and going back brings it in.
    if (diagnostics.some(({ kind }: Json) => kind === "file_beside")) {
      named++;
      await server.result("rollback_migration");
    }
    const { entries } = await server.result("get_entries");
    const what = `kill ${kill}, ${command}, ${JSON.stringify(diagnostics)}`;
    expect(sessions.length, what).toBe(1);
    const ids = entries.map(({ id }: Json) => id);
    expect(new Set(ids).size, what).toBe(ids.length);
    expect(ids.length, what).toBe(ENTRIES + written.size);
    for (const id of written) expect(ids, what).toContain(id);
    // The interrupted request is completed now, or left for the next round.
    if (interrupted && random.chance(0.5)) await server.request(random.pick(["rollback_migration", "migrate_session"]));
    await lives.end();
  }
  return { kills, inTheMiddle, named, written: written.size };
}
