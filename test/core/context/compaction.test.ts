/** A compaction keeps from an entry of the path on, never from between a tool call and its result. */

import { describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { compactionDraft } from "../../../src/core/session/compaction-draft.ts";
import type { Session } from "../../../src/core/session/session.ts";
import { assistantText, chain, entryText, id, userText } from "../../support/lines.ts";
import { messagesAt, sessionOf } from "../../support/sessions.ts";

const message = (n: number, members: object) => entryText("message", id(n), id(n - 1), { message: members });
const calling = (n: number, ...calls: string[]) => {
  const content = calls.map((call) => ({ type: "toolCall", id: call, name: "bash", arguments: {} }));
  return message(n, { role: "assistant", content });
};
const resulting = (n: number, call: string) =>
  message(n, { role: "toolResult", toolCallId: call, toolName: "bash", content: [] });

/** A turn with a parallel batch of calls: 0 user, 1 calls, 2 and 3 results, 4 answer, 5 user. */
const TURN = [
  userText(id(0), null),
  calling(1, "c1", "c2"),
  resulting(2, "c1"),
  resulting(3, "c2"),
  assistantText(id(4), id(3)),
  userText(id(5), id(4)),
];

function draftFor(session: Session, firstKeptEntryId: string | null) {
  return compactionDraft(session, { summary: "s", firstKeptEntryId, tokensBefore: 5 });
}

function refusal(session: Session, firstKeptEntryId: string): { name: string; details: { nearest: string[] } } {
  try {
    draftFor(session, firstKeptEntryId);
  } catch (error) {
    return error as ReturnType<typeof refusal>;
  }
  throw new Error(`${firstKeptEntryId} was accepted`);
}

describe("the boundary", () => {
  test.each([0, 1, 4, 5])("may be entry %i, which begins something", async (n) => {
    const session = await sessionOf(TURN);
    session.append([draftFor(session, id(n))]);
    expect(messagesAt(session)).toHaveLength(1 + TURN.length - n);
  });

  test.each([2, 3])("may not be the result %i, and the nearest that may are named", async (n) => {
    const { name, details } = refusal(await sessionOf(TURN), id(n));
    expect([name, details.nearest]).toEqual(["invalid_boundary", [id(1), id(4)]]);
  });

  test("may not be off the path, after the leaf, or nowhere", async () => {
    const session = await sessionOf([...TURN, userText(id(9), id(0))]);
    for (const entryId of [id(5), "nowhere", ""]) expect(refusal(session, entryId).name).toBe("invalid_boundary");
    session.moveLeaf(4);
    expect(refusal(session, id(5)).name).toBe("invalid_boundary");
  });

  test("may be a result whose call is not there to be separated from it", async () => {
    const session = await sessionOf([userText(id(0), null), resulting(1, "orphan"), userText(id(2), id(1))]);
    expect(() => draftFor(session, id(1))).not.toThrow();
  });

  test("may be nothing, which is the compaction's own id", async () => {
    const session = await sessionOf(chain(3));
    const { ids } = session.append([draftFor(session, null)]);
    expect(session.entry(3)).toMatchObject({ id: ids[0], firstKeptEntryId: ids[0] });
    expect(messagesAt(session)).toHaveLength(1);
  });

  test("holds what is sent with it, byte for byte", async () => {
    const session = await sessionOf(chain(2));
    const [details, usage] = [bytesOf('{"n":1.0}'), bytesOf('{"big":9007199254740993}')];
    const given = { summary: "s", firstKeptEntryId: id(1), tokensBefore: 1.5, details, usage, fromHook: true };
    session.append([compactionDraft(session, given)]);
    expect(textOf(session.line(2))).toContain('"details":{"n":1.0},"usage":{"big":9007199254740993},"fromHook":true');
    expect(session.context().misplacedBoundary).toBe(false);
  });
});
