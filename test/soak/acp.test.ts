/** Sessions of up to 5,000 entries, as an editor is shown them: whole, from a prefix on, forked, and while they grow. */

import { expect } from "vitest";
import { editorHere, ours } from "../support/acp.ts";
import { pathTo, randomSession, requireLoaded, requireShown, storedIn } from "../support/acp-paths.ts";
import { SESSION } from "../support/lines.ts";
import { temporaryPlace } from "../support/server.ts";
import { soak } from "../support/soak.ts";

const CWD = "/home/me/project";

soak("acp", async (random, number) => {
  const place = temporaryPlace();
  const { text, entries } = randomSession(random, 1 + random.int(number % 4 === 0 ? 5000 : 500));
  await storedIn(place, number % 2 === 0 ? "jsonl" : "v2", text);
  const editor = await editorHere([], { place }, random.chance(0.5) ? { compaction: {}, notices: {} } : {});
  const resumed = await editor.result("session/resume", { sessionId: SESSION, cwd: CWD });
  const path = pathTo(entries, ours(resumed).leafId);
  await requireLoaded(editor, SESSION, CWD, path);

  const anchor = random.pick(path).id;
  const _meta = { "pi-session-server": { entryId: anchor } };
  const { sessionId } = await editor.result("session/fork", { sessionId: SESSION, cwd: CWD, _meta });
  const { updates } = await editor.load(sessionId, CWD);
  // Labels of a fork are written anew at its end.
  const kept = pathTo(entries, anchor).filter(({ type }) => type !== "label");
  const isOf = new Set(kept.map(({ id }) => id));
  const passed = updates.filter((update) => isOf.has(ours(update)?.entryId));
  requireShown(kept, passed);

  const target = random.pick(entries).id;
  const { after } = await editor.result("_pi-session-server/branch", { sessionId: SESSION, entryId: target });
  const shown = new Set(
    editor.take(SESSION).flatMap((update) => (ours(update)?.messageId ? [] : (ours(update)?.entryId ?? []))),
  );
  const other = pathTo(entries, target);
  const from = other.findIndex(({ id }) => id === after) + 1;
  for (const { id } of other.slice(from)) expect(shown.has(id)).toBe(true);
  await requireLoaded(editor, SESSION, CWD, other);
  await editor.server.finish();
  return { entries: path.length + kept.length + other.length };
});
