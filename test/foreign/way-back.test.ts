/** Sessions of ours as files that Claude Code and Codex resume, by their rules, and back again. */

import { expect, test } from "vitest";
import { damagedLines, entriesOf, foreignSession, requireSound, strictContext } from "../support/foreign/checks.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { SessionMaker } from "../support/foreign/ours.ts";
import { ClaudeReader, codexHistory, wordsIn } from "../support/foreign/readers.ts";
import { contextSaid, openText, pathsSaid, requireResumable } from "../support/foreign/round-trip.ts";
import { entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { forSeeds } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

const AGENTS = ["claude", "codex"] as const;

for (const agent of AGENTS)
  acrossTiers(test, [3, 20])(`to ${agent} and back: the same messages, at the leaf and in the tree (%i)`, (count) => {
    forSeeds(count, (random) => {
      const session = openText(new SessionMaker(random, agent, false).make(4 + random.int(30)).text);
      const made = requireResumable(agent, session);
      const back = foreignSession(made.text, `/elsewhere/${made.sessionId}.jsonl`);
      requireSound(back);
      // Where nothing is said on the way to the leaf, Claude Code continues something else.
      const said = contextSaid(agent, session);
      if (said.length > 0) expect(contextSaid(agent, back)).toEqual(said);
      const reader = agent === "claude" ? new ClaudeReader(made.text) : undefined;
      const read = reader ? reader.leaf && reader.messagesAt(reader.leaf) : codexHistory(made.text);
      if (read) expect(wordsIn(read)).toEqual(wordsIn(strictContext(back)));
      if (agent === "claude") expect(pathsSaid(agent, back)).toEqual(pathsSaid(agent, session));
      if (session.name !== null) expect(back.name).toBe(session.name);
      expect(back.cwd).toBe(session.cwd);
      back.close();
      session.close();
    });
  });

for (const agent of AGENTS)
  acrossTiers(test, [3, 30])(`to ${agent}, of sessions with what it cannot have (%i)`, (count) => {
    forSeeds(count, (random) => {
      const session = openText(new SessionMaker(random, agent, true).make(3 + random.int(30)).text);
      const { nodes } = session.log;
      requireResumable(agent, session, nodes.count > 0 && random.chance(0.5) ? random.int(nodes.count) : undefined);
      session.close();
    });
  });

for (const agent of AGENTS)
  acrossTiers(test, [3, 20])(`to ${agent}, of damaged sessions (%i)`, (count) => {
    forSeeds(count, (random) => {
      const { lines } = new SessionMaker(random, agent, random.chance(0.5)).make(15);
      const [header, ...entries] = lines;
      const session = openText(Buffer.concat([Buffer.from(`${header}\n`), damagedLines(random, entries)]));
      requireResumable(agent, session);
      session.close();
    });
  });

test.each(AGENTS)("to %s, where a summary and an error say nothing: providers refuse texts without text", (agent) => {
  const said = { role: "assistant", content: [], stopReason: "error", errorMessage: " " };
  const text = fileText(
    headerText(),
    userText(id(1), null),
    entryText("compaction", id(2), id(1), { summary: " \n", firstKeptEntryId: id(2), tokensBefore: 9 }),
    entryText("message", id(3), id(2), { message: said }),
    userText(id(4), id(3)),
  );
  const { text: made } = requireResumable(agent, openText(text));
  const reader = agent === "claude" ? new ClaudeReader(made) : undefined;
  const words = wordsIn(reader ? reader.messagesAt(reader.leaf as string) : codexHistory(made));
  expect(words).toHaveLength(2);
  expect(words.filter((word) => word.trim() === "")).toEqual([]);
});

test("to Codex and back, with the models and how much they think", () => {
  const answer = (n: number, model: string): string =>
    entryText("message", id(n), id(n - 1), {
      message: { role: "assistant", content: [{ type: "text", text: "Yes" }], provider: "openai", model },
    });
  const text = fileText(
    headerText(),
    userText(id(1), null),
    answer(2, "gpt-one"),
    entryText("model_change", id(3), id(2), { provider: "openai", modelId: "gpt-two" }),
    entryText("thinking_level_change", id(4), id(3), { thinkingLevel: "high" }),
    userText(id(5), id(4)),
    answer(6, "gpt-two"),
    answer(7, "gpt-two"),
  );
  const { text: made, report } = requireResumable("codex", openText(text));
  expect(made).not.toMatch(/approval_policy|sandbox_policy/);
  expect(report.kinds.filter(({ derived }) => derived > 0).map(({ kind }) => kind)).toEqual([
    "model_change",
    "thinking_level_change",
  ]);
  const back = foreignSession(made, "/elsewhere/back.jsonl");
  const told = entriesOf(back).map(({ modelId, thinkingLevel, message }) =>
    [modelId, thinkingLevel, (message as { model?: string } | undefined)?.model].find((one) => one !== undefined),
  );
  expect(told.filter((one) => one !== undefined)).toEqual([
    "gpt-one",
    "gpt-one",
    "gpt-two",
    "high",
    "gpt-two",
    "gpt-two",
  ]);
});

test.each(FORMATS.flatMap((one) => AGENTS.map((agent) => [one.format, agent, one] as const)))(
  "of %s, for %s",
  (_, agent, { text, path }) => {
    const session = foreignSession(text, `/home/me/${path}`);
    requireResumable(agent, session);
    session.close();
  },
);
