/** Sessions of ours as files that Claude Code and Codex resume, by their rules, and back again. */

import { describe, expect, test } from "vitest";
import { makeResumableFile } from "../../../src/modules/foreign/write/resumable.ts";
import { assistant } from "../../support/drafts.ts";
import { entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import { processorTimeOf } from "../../support/processor.ts";
import { forSeeds, range } from "../../support/random.ts";
import type { Json } from "../../support/server.ts";
import { sessionOf } from "../../support/sessions.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import { damagedLines, entriesOf, foreignSession, requireSound, strictContext } from "./support/checks.ts";
import { SessionMaker } from "./support/ours.ts";
import { ClaudeReader, codexHistory, wordsIn } from "./support/readers.ts";
import { contextSaid, openText, pathsSaid, requireResumable } from "./support/round-trip.ts";

const AGENTS = ["claude", "codex"] as const;

for (const agent of AGENTS)
  acrossTiers(test, [3, 20])(`to ${agent} and back: the same messages, at the leaf and in the tree (%i)`, (count) => {
    forSeeds(count, (random) => {
      const session = openText(new SessionMaker(random, agent, false).make(4 + random.int(30)).text);
      const made = requireResumable(agent, session);
      const back = foreignSession(made.text, `/elsewhere/${made.sessionId}.jsonl`);
      requireSound(back);
      // If no message is on the way to the leaf, Claude Code continues another one.
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
  for (const [kind, most] of [
    ["with what it cannot have", 30],
    ["that are damaged", 20],
  ] as const)
    acrossTiers(test, [3, most])(`to ${agent}, of sessions ${kind} (%i)`, (count) => {
      forSeeds(count, (random) => {
        const isDamaged = kind === "that are damaged";
        const isWild = !isDamaged || random.chance(0.5);
        const { lines, text } = new SessionMaker(random, agent, isWild).make(isDamaged ? 15 : 3 + random.int(30));
        const damaged = Buffer.concat([Buffer.from(`${lines[0]}\n`), damagedLines(random, lines.slice(1))]);
        const session = openText(isDamaged ? damaged : text);
        const { count: all } = session.log.nodes;
        requireResumable(agent, session, !isDamaged && all > 0 && random.chance(0.5) ? random.int(all) : undefined);
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
  const shown = entriesOf(back).map(({ modelId, thinkingLevel, message }) =>
    [modelId, thinkingLevel, (message as { model?: string } | undefined)?.model].find((one) => one !== undefined),
  );
  expect(shown.filter(Boolean)).toEqual(["gpt-one", "gpt-one", "gpt-two", "high", "gpt-two", "gpt-two"]);
});

describe("takes no time that grows with the square of the calls of one answer", SWEEP, () => {
  const COUNT = 40_000;
  const calls = range(0, COUNT).map((n) => ({ type: "toolCall", id: `call-${n}`, name: "read", arguments: {} }));
  const result = (n: number, parent: string) =>
    entryText("message", id(n + 2), parent, {
      message: { role: "toolResult", toolCallId: `call-${n}`, toolName: "read", content: [], isError: false },
    });
  const answer = entryText("message", id(1), id(0), {
    message: { ...assistant("").message, content: [{ type: "text", text: "look" }, ...calls] },
  });
  const asked = userText("ffffffff", id(1), "and?");
  const after = range(0, COUNT).map((n) => result(n, n === 0 ? "ffffffff" : id(n + 1)));
  test.each<[string, readonly string[]]>([
    ["with their results", range(0, COUNT).map((n) => result(n, id(n + 1)))],
    ["with results that come after a message", [asked, ...after]],
    ["without results", [asked]],
  ])("%s", async (_, rest) => {
    const session = await sessionOf([userText(id(0), null), answer, ...rest]);
    for (const agent of AGENTS) {
      const options = { leaf: session.tree.leaf, all: agent === "claude" };
      const took = await processorTimeOf(() =>
        expect([...makeResumableFile(agent, session, options).lines()].length).toBeGreaterThan(COUNT),
      );
      expect(took, agent).toBeLessThan(6000);
    }
  });
});

test("branches that answer other calls of one answer each have results for all of them", async () => {
  const calls = ["x", "y", "x", ""].map((own) => ({ type: "toolCall", id: own, name: "read", arguments: {} }));
  const answer = entryText("message", id(1), id(0), { message: { ...assistant("").message, content: calls } });
  const result = (n: number, parent: number, toolCallId: string) =>
    entryText("message", id(n), id(parent), {
      message: { role: "toolResult", toolCallId, toolName: "read", content: [{ type: "text", text: `r${n}` }] },
    });
  const note = entryText("custom", id(2), id(1), { customType: "n" });
  const session = await sessionOf([
    userText(id(0), null),
    answer,
    note,
    result(3, 2, "x"),
    result(4, 3, "x"),
    result(5, 2, "y"),
    result(6, 1, "unknown"),
    result(7, 6, ""),
    userText(id(8), id(5), "on"),
  ]);
  const { lines } = makeResumableFile("claude", session, {
    leaf: session.position(id(8)),
    all: true,
  });
  const said = new Map<string, string[]>();
  for (const line of lines()) {
    const { uuid = "", parentUuid, message } = JSON.parse(line);
    const [{ type, content } = {} as Json] = message?.content ?? [];
    const own = type === "tool_result" ? [(content?.[0]?.text ?? "lost").slice(0, 2)] : [];
    said.set(uuid, [...(said.get(parentUuid) ?? []), ...own]);
  }
  const ends = [...said.values()].filter(({ length }) => length === calls.length).map((texts) => texts.join(" "));
  expect([...new Set(ends)].sort()).toEqual(["r3 r4 lo lo", "r5 lo lo lo", "r6 r7 lo lo"]);
});
