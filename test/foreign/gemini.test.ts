/** Sessions of Gemini CLI: lines that replace others, what was gone back from, compactions, and the older documents. */

import { expect, test } from "vitest";
import { Ids } from "../../src/core/foreign/ids.ts";
import { translatorOf } from "../../src/core/foreign/translators.ts";
import { testEnv } from "../support/env.ts";
import {
  damagedLines,
  diskWithForeign,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  readDamaged,
  requirePairedAtEveryLeaf,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import {
  GEMINI_SESSION,
  GeminiWriter,
  geminiDocumentText,
  randomGeminiSession,
  wholeGeminiSession,
} from "../support/foreign/gemini.ts";
import { forSeeds } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

const DOCUMENT = "/elsewhere/chats/session-2025-08-01T10-00-3f0c6d52.json";

function texts(session: ReturnType<typeof foreignSession>): string[] {
  return strictContext(session).map((message) => {
    const { role, content, summary } = message as { role: string; content?: unknown; summary?: string };
    const blocks = Array.isArray(content) ? content : [{ type: "text", text: content ?? summary }];
    const said = blocks.map(({ type, text, id }) => (type === "toolCall" ? `call ${id}` : (text ?? ""))).join("");
    return `${role}: ${said}`;
  });
}

test("every kind of record is counted, and all leaves have a context that providers take", () => {
  const writer = wholeGeminiSession();
  const session = foreignSession(writer.text);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.records).toBe(writer.records.length);
  expect(report.warnings).toEqual([]);
  expect(report.kinds.filter(({ dropped }) => dropped > 0).map(({ kind }) => kind)).toEqual(["$set lastUpdated"]);
  // Gone back from, before the masking, and the conversation.
  expect(requirePairedAtEveryLeaf(session)).toBe(3);
  expect(session.name).toBe("Files are listed");
  expect(session.cwd).toBe("/home/me/project");
  expect(session.log.damage).toEqual([]);
});

test("a message that is written again with its calls is one entry, and their results are one line behind it", () => {
  const w = new GeminiWriter();
  w.user("Go");
  w.gemini("I go.");
  w.calls([
    { id: "a", name: "one", text: "1" },
    { id: "b", name: "two", text: "2", status: "error" },
  ]);
  w.gemini("Gone.");
  const session = foreignSession(w.text);
  expect(texts(session)).toEqual([
    "user: Go",
    "assistant: I go.call acall b",
    "toolResult: 1",
    "toolResult: 2",
    "assistant: Gone.",
  ]);
  expect(strictContext(session)[1].usage).toMatchObject({ input: 42, output: 25, cacheRead: 60, totalTokens: 127 });
  expect(strictContext(session)[3].isError).toBe(true);
});

test("what was gone back from stays as a branch; a message that is not there is gone back to as the beginning", () => {
  const w = new GeminiWriter();
  w.user("One");
  w.gemini("First.");
  const two = w.user("Two");
  w.gemini("Second.");
  w.rewindTo(two.id);
  const rewound = foreignSession(w.text);
  expect(texts(rewound)).toEqual(["user: One", "assistant: First."]);
  w.user("Three");
  const session = foreignSession(w.text);
  expect(texts(session)).toEqual(["user: One", "assistant: First.", "user: Three"]);
  expect(JSON.stringify(entriesOf(session))).toContain("Second.");
  w.rewindTo("not-there");
  w.user("Four");
  const anew = foreignSession(w.text);
  expect(texts(anew)).toEqual(["user: Four"]);
  expect(fidelityOf(anew.log).warnings).toHaveLength(1);
  expect(requirePairedAtEveryLeaf(anew)).toBe(3);
});

test("a summary with kept messages is a compaction that keeps their entries", () => {
  const w = new GeminiWriter();
  w.user("One");
  w.gemini("First.");
  w.user("Two");
  w.gemini("I look.");
  w.calls([{ id: "a", name: "one", text: "1" }]);
  w.gemini("Second.");
  const kept = w.history.slice(2);
  const summary = { id: "s", timestamp: w.time(), type: "user", content: "<state_snapshot>One</state_snapshot>" };
  const ok = { id: "ok", timestamp: w.time(), type: "gemini", content: "Got it. Thanks!" };
  w.setMessages([summary, ok, ...kept.map((record, n) => ({ ...record, id: `kept-${n}` }))]);
  w.user("Three");
  const session = foreignSession(w.text);
  expect(entriesOf(session).filter(({ type }) => type === "compaction")).toHaveLength(1);
  expect(texts(session).slice(1)).toEqual([
    "user: Two",
    "assistant: I look.call a",
    "toolResult: 1",
    "assistant: Second.",
    "user: Three",
  ]);
  expect(texts(session)[0]).toContain("One");
});

test("the older document has the same session and entries", () => {
  const w = new GeminiWriter();
  w.user("One");
  w.gemini("");
  w.calls([{ id: "a", name: "one", text: "1" }]);
  w.gemini("Done.");
  const lines = foreignSession(w.text);
  const document = foreignSession(geminiDocumentText(w, { summary: "A title" }), DOCUMENT);
  requireSound(document);
  expect(document.id).toBe(lines.id);
  expect(document.name).toBe("A title");
  expect(strictContext(document)).toEqual(strictContext(lines));
  const idsOf = (session: typeof lines): unknown[] =>
    entriesOf(session).flatMap(({ type, id }) => (type === "message" ? [id] : []));
  expect(idsOf(document)).toEqual(idsOf(lines));
  expect(fidelityOf(document.log).records).toBe(1 + w.history.length);
});

test("old documents whose calls have no ids, and whose tools' answers were not kept", () => {
  const messages = [
    { id: "u", timestamp: "2025-08-01T10:00:00Z", type: "user", content: "Read" },
    {
      id: "g",
      timestamp: "2025-08-01T10:00:05Z",
      type: "gemini",
      content: "",
      thoughts: [{ subject: "", description: "hm" }],
      toolCalls: [
        { name: "read_file", args: {}, status: "success" },
        { name: "read_file", args: {}, status: "success", result: "text" },
      ],
    },
  ];
  const facts = { lastUpdated: "2025-08-01T10:00:05Z", messages, projectHash: "abc", sessionId: GEMINI_SESSION };
  for (const space of [0, 2]) {
    const session = foreignSession(JSON.stringify(facts, null, space), DOCUMENT);
    requireSound(session);
    expect(strictContext(session).map(({ role }) => role)).toEqual(["user", "assistant", "toolResult"]);
  }
});

test("a subagent's file has its folder from its own record", () => {
  const w = new GeminiWriter({ kind: "subagent", directories: ["/home/me/project"] });
  w.user("A task");
  w.gemini("Done.");
  expect(foreignSession(w.text).cwd).toBe("/home/me/project");
});

acrossTiers(test, [6, 20])("what was settled of a file is what a longer one begins with (%i)", (count) => {
  forSeeds(count, (random) => {
    const { lines } = randomGeminiSession(random, 8);
    const settledOf = (taken: readonly string[]): string[] => {
      const translator = translatorOf(Buffer.from(lines.join("\n")), true);
      if (!translator) throw new Error("not recognised");
      const settled: string[] = [];
      const { sha256 } = testEnv();
      const ids = new Ids("gemini", sha256);
      const emit = (entry: object): unknown => settled.push(JSON.stringify(entry));
      const translation = translator.begin({
        agent: "gemini",
        ids,
        sha256,
        emit,
        isSurvey: false,
        comesLater: () => false,
        name: "x",
      });
      for (const [n, line] of taken.entries())
        translation.take({ bytes: Buffer.from(line), value: JSON.parse(line), number: n + 1 });
      return settled;
    };
    const shorter = settledOf(lines.slice(0, random.int(lines.length)));
    expect(settledOf(lines).slice(0, shorter.length)).toEqual(shorter);
  });
});

acrossTiers(test, ["1 of 2 turns", "4 of 4 turns"])(
  "wherever a file is cut, no entry of it has the id of another one of the whole file (%s)",
  (given) => {
    const [count, , turns] = given.split(" ");
    forSeeds(Number(count), (random) => {
      const { lines } = randomGeminiSession(random, Number(turns));
      const whole = new Map(entriesOf(foreignSession(`${lines.join("\n")}\n`)).map((entry) => [entry.id, entry]));
      for (let cut = 1; cut < lines.length; cut++)
        for (const entry of entriesOf(foreignSession(`${lines.slice(0, cut).join("\n")}\n`)))
          if (whole.has(entry.id)) expect(entry).toEqual(whole.get(entry.id));
    });
  },
);

acrossTiers(test, [4, 25])(
  "sessions in any order of turns have a sound tree, and the conversation as the program has it (%i)",
  (count) => {
    forSeeds(count, (random) => {
      const w = randomGeminiSession(random, 10);
      const session = foreignSession(w.text);
      requireSound(session);
      const told = w.history.flatMap(({ content }) => JSON.stringify(content).match(/Turn \d+/g) ?? []);
      const shown = texts(session).flatMap((text) => text.match(/^user: (Turn \d+)/)?.[1] ?? []);
      expect(shown.slice(shown.length - told.length)).toEqual(told);
      expect(fidelityOf(session.log).records).toBe(w.records.length);
      session.close();
    });
  },
);

acrossTiers(test, [4, 40])("files of lines that were damaged at random (%i)", (count) => {
  const whole = wholeGeminiSession().lines;
  const { made, read } = readDamaged(
    count,
    (random) => (random.chance(0.5) ? whole : randomGeminiSession(random, 4).lines),
    { isByLine: true },
  );
  expect(read).toBe(made);
});

acrossTiers(test, [6, 20])("documents that were damaged at random (%i)", (count) => {
  const whole = geminiDocumentText(wholeGeminiSession()).split("\n");
  let recognised = 0;
  forSeeds(count, (random) => {
    const bytes = damagedLines(random, whole);
    if (translatorOf(bytes, true)?.agent !== "gemini") return;
    recognised++;
    const session = foreignSession(bytes, DOCUMENT);
    requireSound(session);
    session.close();
  });
  expect(recognised).toBeGreaterThan(0.75 * count);
});

test("the directory of a session is that of its project, as Gemini CLI notes it", () => {
  const writer = new GeminiWriter({ kind: "main", directories: undefined });
  writer.user("Hello");
  const cwdIn = (notes: Readonly<Record<string, string>>): unknown => {
    const disk = diskWithForeign(writer.text, "/home/me/.gemini/tmp/site/chats/session-x.jsonl");
    for (const [path, text] of Object.entries(notes)) disk.put(path, Buffer.from(text));
    return foreignSessionOn(disk, "/home/me/.gemini/tmp/site/chats/session-x.jsonl").log.header.cwd;
  };
  const list = "/home/me/.gemini/projects.json";
  expect(cwdIn({ [list]: JSON.stringify({ projects: { "/other": "else", "/home/me/site": "site" } }) })).toBe(
    "/home/me/site",
  );
  expect(cwdIn({ "/home/me/.gemini/tmp/site/.project_root": "/home/me/root\n" })).toBe("/home/me/root");
  for (const text of ["", "{", "[]", '{"projects":[]}', '{"projects":{"relative":"site"}}'])
    expect(cwdIn({ [list]: text })).toBe(cwdIn({}));
});
