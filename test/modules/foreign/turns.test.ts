/** Answers with very many calls, and ids that very many entries have: the work grows with the file, not with its square. */

import { expect, test } from "vitest";
import { makeTextBlock, NO_USAGE } from "../../../src/core/foreign/messages.ts";
import { Derivation } from "../../../src/modules/foreign/read/derivation.ts";
import type { TranslatedEntry, Translator } from "../../../src/modules/foreign/read/translator.ts";
import { Turns } from "../../../src/modules/foreign/read/turns.ts";
import { acrossTiers } from "../../support/tiers.ts";

const AT = "2026-09-14T08:00:00.000Z";
const MODEL = { api: "a", provider: "p", model: "m", usage: NO_USAGE, at: AT };

function turnsInto(entries: TranslatedEntry[]): Turns {
  const emit = (entry: TranslatedEntry): void => void entries.push(entry);
  const about = { isSurvey: false, comesLater: () => false, name: "", sha256: () => "" };
  return new Turns({ agent: "claude", ids: { entry: (id) => id }, emit, ...about });
}

function resultOf(toolCallId: string) {
  return { toolCallId, toolName: "ls", content: [makeTextBlock("out")], isError: false, at: AT };
}

test("however many results an answer has, each of its blocks is looked at a few times", () => {
  const entries: TranslatedEntry[] = [];
  const turns = turnsInto(entries);
  const answer = turns.begin({ nativeId: "answer", ...MODEL });
  let looks = 0;
  const count = 1000;
  for (let n = 0; n < count; n++) {
    const get = (): string => {
      looks++;
      return "toolCall";
    };
    const block = Object.defineProperty({ id: `call${n}` }, "type", { get });
    answer.content.push(block as { id: string; type: string });
  }
  for (let n = 0; n < count; n++) turns.result(`result${n}`, resultOf(`call${n}`));
  turns.settle();
  const begun = entries.slice(0, 3).map(({ id, parentId }) => `${id} of ${parentId}`);
  expect(begun).toEqual(["answer of null", "result0 of answer", "result1 of result0"]);
  expect(entries).toHaveLength(1 + count);
  expect(looks).toBeLessThan(4 * count);
});

test("calls that come between results are known, those of an earlier answer are not", () => {
  const entries: TranslatedEntry[] = [];
  const turns = turnsInto(entries);
  const first = turns.begin({ nativeId: "first", ...MODEL });
  first.content.push({ type: "toolCall", id: "a", name: "ls", arguments: {} });
  turns.result("result a", resultOf("a"));
  first.content.push({ type: "toolCall", id: "b", name: "ls", arguments: {} });
  turns.result("result b", resultOf("b"));
  expect(entries).toEqual([]);
  turns.begin({ nativeId: "second", ...MODEL });
  turns.result("again", resultOf("a"));
  expect(entries.map(({ id }) => id)).toEqual(["first", "result a", "result b", "second", "again"]);
});

acrossTiers(test, [4000, 20_000])("of %i entries with one id, each has its own, in their order", (count) => {
  const translator: Translator = {
    agent: "claude",
    title: "Test",
    form: { kind: "lines" },
    recognises: () => true,
    begin: ({ emit }) => ({
      take: ({ value }) => {
        emit({ type: "custom", id: String(value), parentId: null, timestamp: AT, members: {} });
        return { kind: "any", fidelity: "preserved" };
      },
      keep: () => {},
      pending: () => ({ entries: [], isPartial: false }),
      about: () => ({}),
    }),
  };
  const lines: string[] = [];
  const line = (bytes: Uint8Array): void => void lines.push(JSON.parse(Buffer.from(bytes).toString()).id);
  const derivation = new Derivation(translator, { sha256: () => "" }, "name", { line });
  for (const [n, id] of ["x", "x-3", "x", "x", "x", "y"].entries()) derivation.take(Buffer.from(`"${id}"`), n + 1);
  expect(lines).toEqual(["x", "x-3", "x-2", "x-4", "x-5", "y"]);
  // Trying each number again would be millions of looks.
  for (let n = 0; n < count; n++) derivation.take(Buffer.from('"x"'), n + 7);
  expect(lines.at(-1)).toBe(`x-${count + 5}`);
});
