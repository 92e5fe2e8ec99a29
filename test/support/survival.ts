/** Writes of the typed client to a server that is killed again and again. */

import { type SpawnedClient, type SpawnOptions, spawnServer } from "../../src/client/index.ts";
import { PROGRAM } from "./build.ts";
import { user } from "./drafts.ts";
import type { Random } from "./random.ts";
import { type Place, programEnvironment, temporaryPlace } from "./server.ts";

/** Starts a server in a place of its own. The caller closes the client. */
export function survivingClient(store: string, options: SpawnOptions = {}, place: Place = temporaryPlace()) {
  return spawnServer({
    program: PROGRAM,
    cwd: place.cwd,
    env: programEnvironment(place),
    onStderr: () => {},
    ...options,
    args: ["--store", store, "--durability", "os", ...(options.args ?? [])],
  });
}

export function kill(client: SpawnedClient): void {
  process.kill(client.pid as number, "SIGKILL");
}

export async function textsOf(client: SpawnedClient): Promise<string[]> {
  const { messages } = await client.request("get_messages");
  return messages.map((message) => String((message as { content?: unknown }).content));
}

/**
 * Sends so many writes at once and kills the server after every few hundred answers. Returns how many were lost,
 * doubled, out of their order or answered with the id of another, and how often the server died.
 */
export async function writesUnderKills(client: SpawnedClient, writes: number, random: Random) {
  let restarts = 0;
  client.onRestart(() => restarts++);
  let answered = 0;
  let kills = 0;
  let next = 100 + random.int(200);
  const wanted = Array.from({ length: writes }, (_, i) => `w${i}`);
  const ids = await Promise.all(
    wanted.map(async (text) => {
      const { entryIds } = await client.request("append", { entries: [user(text)] });
      if (++answered >= next && client.pid !== undefined && kills <= restarts) {
        next = answered + 100 + random.int(400);
        kills++;
        kill(client);
      }
      return entryIds[0];
    }),
  );
  const texts = await textsOf(client);
  const { entries } = await client.request("get_entries");
  const found = new Map(texts.map((text, i) => [text, entries[i].id]));
  return {
    writes,
    kills,
    lost: wanted.filter((text) => !found.has(text)).length,
    doubled: texts.length - found.size,
    misplaced: wanted.filter((text, i) => texts[i] !== text || found.get(text) !== ids[i]).length,
  };
}
