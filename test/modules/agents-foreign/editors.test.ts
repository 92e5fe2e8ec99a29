/**
 * Editors in front of other agents' sessions.
 *
 * @module-tag system
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { editorHere, ours } from "../../support/acp.ts";
import { realEnv } from "../../support/catalog.ts";
import { wholeClaudeSession } from "../../support/foreign/claude.ts";
import { put, serveLibrary } from "../../support/lifecycle.ts";
import { temporaryPlace } from "../../support/server.ts";

test("an editor loads them by the ids of a list, and does not delete them", async () => {
  const place = temporaryPlace();
  const claude = join(place.home, ".claude/projects/-home-me-project/7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl");
  put(claude, wholeClaudeSession().text);
  const server = serveLibrary(place);
  const [{ sessionId }] = (await server.result("list_sessions", { agents: "all" })).sessions;
  await server.finish();
  const editor = await editorHere([], { place, env: { sha256: realEnv.sha256 } });
  const loaded = await editor.result("session/load", { sessionId, cwd: "/home/me/project", mcpServers: [] });
  expect(ours(loaded)).toMatchObject({ readOnly: true });
  expect((await editor.failure("session/delete", { sessionId })).message).toContain("read");
  expect(existsSync(claude)).toBe(true);
});
