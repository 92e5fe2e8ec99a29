/** Sessions of Gemini CLI: both of its forms are one session, and any order of turns is the conversation as it is now. */

import { expect, test } from "vitest";
import { Ids } from "../../../src/core/foreign/ids.ts";
import { findTranslator } from "../../../src/modules/foreign/read/translators.ts";
import { testEnv } from "../../support/env.ts";
import {
  GeminiWriter,
  geminiDocumentText,
  randomGeminiSession,
  wholeGeminiSession,
} from "../../support/foreign/gemini.ts";
import { forSeeds } from "../../support/random.ts";
import { acrossTiers } from "../../support/tiers.ts";
import {
  diskWithForeign,
  drawnContext,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
  strictContext,
} from "./support/checks.ts";

test("the older document has the same session and entries", () => {
  const w = new GeminiWriter();
  w.ask("One");
  w.work("", ["a"]);
  w.reply("Done.");
  const lines = foreignSession(w.text);
  const text = geminiDocumentText(w, { summary: "A title" });
  const document = foreignSession(text, "/elsewhere/chats/session-2025-08-01T10-00-3f0c6d52.json");
  expect([document.id, document.name]).toEqual([lines.id, "A title"]);
  expect(strictContext(document)).toEqual(strictContext(lines));
  const idsOf = (session: typeof lines): unknown[] =>
    entriesOf(session).flatMap(({ type, id }) => (type === "message" ? [id] : []));
  expect(idsOf(document)).toEqual(idsOf(lines));
});

/** Returns the entries that a translation of these lines has settled. */
function settledOf(lines: readonly string[]): string[] {
  const settled: string[] = [];
  const { sha256 } = testEnv();
  const ids = new Ids("gemini", sha256);
  const emit = (entry: object): unknown => settled.push(JSON.stringify(entry));
  const about = { isSurvey: false, comesLater: () => false, name: "x" };
  const translator = findTranslator(Buffer.from(wholeGeminiSession().text), true);
  const translation = translator?.begin({ agent: "gemini", ids, sha256, emit, ...about });
  for (const [n, line] of lines.entries())
    translation?.take({ bytes: Buffer.from(line), value: JSON.parse(line), number: n + 1 });
  return settled;
}

acrossTiers(test, [6, 20])("what was settled of a file is what a longer one begins with (%i)", (count) => {
  let entries = 0;
  forSeeds(count, (random) => {
    const { lines } = randomGeminiSession(random, 8);
    const shorter = settledOf(lines.slice(0, random.int(lines.length)));
    expect(settledOf(lines).slice(0, shorter.length)).toEqual(shorter);
    entries += shorter.length;
  });
  expect(entries).toBeGreaterThan(count);
});

acrossTiers(test, [4, 25])(
  "sessions in any order of turns have the conversation as the program has it (%i)",
  (count) => {
    forSeeds(count, (random) => {
      const w = randomGeminiSession(random, 10);
      const session = foreignSession(w.text);
      requireSound(session);
      const turns = w.history.flatMap(({ content }) => JSON.stringify(content).match(/Turn \d+/g) ?? []);
      const shown = drawnContext(session).flatMap((text) => text.match(/^user: (Turn \d+)/)?.[1] ?? []);
      expect(shown.slice(shown.length - turns.length)).toEqual(turns);
      expect(fidelityOf(session.log).records).toBe(w.records.length);
      session.close();
    });
  },
);

test("the directory of a session is that of its project, as Gemini CLI notes it; a subagent's is in its own record", () => {
  const file = "/home/me/.gemini/tmp/site/chats/session-x.jsonl";
  const cwdIn = (notes: Readonly<Record<string, string>>, facts: object = {}): unknown => {
    const writer = new GeminiWriter({ kind: "main", directories: undefined, ...facts });
    writer.ask("Hello");
    const disk = diskWithForeign(writer.text, file);
    for (const [path, text] of Object.entries(notes)) disk.put(path, Buffer.from(text));
    return foreignSessionOn(disk, file).log.header.cwd;
  };
  const list = "/home/me/.gemini/projects.json";
  const projects = { "/other": "else", "/home/me/site": "site" };
  expect(cwdIn({ [list]: JSON.stringify({ projects }) })).toBe("/home/me/site");
  expect(cwdIn({ "/home/me/.gemini/tmp/site/.project_root": "/home/me/root\n" })).toBe("/home/me/root");
  for (const text of ["", "{", "[]", '{"projects":[]}', '{"projects":{"relative":"site"}}'])
    expect(cwdIn({ [list]: text })).toBe(cwdIn({}));
  expect(cwdIn({}, { kind: "subagent", directories: ["/home/me/project"] })).toBe("/home/me/project");
});
