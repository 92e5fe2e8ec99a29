/** What browse asks for, and what becomes of the replies. */

import { describe, expect, test } from "vitest";
import { createActions } from "../../../src/cli/browse/actions.ts";
import type { VerbContext } from "../../../src/cli/verb.ts";
import type { Json } from "../../support/server.ts";

describe("the actions of browse", () => {
  test("show a deleted session that only the fleet has, and bring it back by its id", async () => {
    const item = { sessionPath: "/s/one.jsonl", name: "Pears", firstMessage: null, deletedAt: "now", sizeBytes: 1 };
    const items = [
      { ...item, itemPath: null, sessionId: "remote", messageCount: 2 },
      { ...item, itemPath: "/t/item", sessionId: "local", messageCount: null },
      { ...item, itemPath: "/t/rest", sessionId: null, messageCount: null },
    ];
    const asked: Json[] = [];
    const ask = async (method: string, params: Json): Promise<Json> => {
      asked.push([method, params]);
      return method === "list_trash" ? { items } : { movedTo: "/s/one.jsonl" };
    };
    const act = createActions({ ask, page: () => ({ now: 0 }) } as unknown as VerbContext);
    const query = { shelf: "trash", words: "pears", sort: "modified", isNamed: false } as const;
    const listed = (await act({ do: "list", query, cursor: undefined, limit: 9, isQuick: false } as never)) as Json;
    const places = listed.sessions.map(({ sessionId, itemPath }: Json) => [sessionId, itemPath]);
    expect(places).toEqual([
      ["remote", null],
      ["local", "/t/item/one.jsonl"],
    ]);
    for (const session of listed.sessions) await act({ do: "change", change: { change: "restore", session } });
    expect(asked.slice(1)).toEqual([
      ["restore_session", { sessionId: "remote" }],
      ["restore_session", { sessionPath: "/t/item/one.jsonl" }],
    ]);
  });
});
