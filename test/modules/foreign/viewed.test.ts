/**
 * Other agents' sessions in the viewer.
 *
 * @module-tag system
 */

import { join } from "node:path";
import { expect, test } from "vitest";
import { wholeClaudeSession } from "../../support/foreign/claude.ts";
import { opencodeDatabase } from "../../support/foreign/databases.ts";
import { OPENCODE_SESSION, wholeOpencodeExport } from "../../support/foreign/opencode.ts";
import { contentsOf, put } from "../../support/lifecycle.ts";
import { temporaryPlace } from "../../support/server.ts";
import { view } from "../../support/viewing.ts";

// The verb loads it when it is asked for, which takes longer than a test may.
import "../../../src/view/main.ts";

test("they are listed on request, read, searched, and never written", async () => {
  const place = temporaryPlace();
  const claude = put(
    join(place.home, ".claude/projects/-home-me/7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl"),
    wholeClaudeSession().text,
  );
  const file = put(join(place.home, ".local/share/opencode/opencode.db"), "");
  opencodeDatabase(file, [wholeOpencodeExport()], { journal: "DELETE" }).close();
  const before = [contentsOf(join(place.home, ".claude")), contentsOf(join(file, ".."))];
  const viewing = await view(place, []);
  expect((await viewing.get("")).text).not.toContain("My own title");
  const { text } = await viewing.get("?others=1");
  expect(text).toContain("My own title");
  expect(text).toContain('<span class="tag">opencode</span>');
  for (const path of [claude, join(file, OPENCODE_SESSION)]) {
    const address = new RegExp(`href="(session\\?[^"]*${encodeURIComponent(path)}[^"]*)"`).exec(text)?.[1] ?? "none";
    const page = await viewing.get(address.replaceAll("&amp;", "&"));
    expect(page.status).toBe(200);
    expect(page.text).toContain("ist the f");
  }
  expect((await viewing.get("?q=files&others=1")).text).toMatch(/Found in messages and calls[\s\S]*session\?/);
  const all = await view(place, ["--agents", "claude"]);
  const shown = (await all.get("")).text;
  expect(shown).toContain("My own title");
  expect(shown).not.toContain('<span class="tag">opencode</span>');
  expect([contentsOf(join(place.home, ".claude")), contentsOf(join(file, ".."))]).toEqual(before);
});
