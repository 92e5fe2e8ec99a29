/** A page's updates of a session that grows: new entries with their pictures, as far as an answer has room for these. */

import { expect, test } from "vitest";
import { AskFailed } from "../../src/view/answer.ts";
import { formatPlace, streamEvents } from "../../src/view/live.ts";
import type { Watch, Watches } from "../../src/view/watches.ts";

test("pictures of a batch that no answer has room for are shown one by one, and left out where one is too large", async () => {
  const picture = { type: "image", mimeType: "image/png" };
  const entry = (id: string, parentId: string | null, ...pictures: object[]) => {
    const content = [{ type: "text", text: `see ${id}` }, ...pictures];
    return { type: "message", id, parentId, timestamp: "2026-01-01T00:00:00.000Z", message: { role: "user", content } };
  };
  const small = { ...picture, data: "iVBORw0KGgoSMALL" };
  const omitted = { type: "text", text: "[image omitted]" };
  const reference = (id: string) => ({ ...picture, data: { entryId: id, block: 1 } });
  const asked: unknown[] = [];
  const stop = new AbortController();
  const watch = {
    isGone: false,
    listen: () => () => {},
    async ask(method: string, params: Record<string, unknown> = {}) {
      const { entryId, images } = params;
      if (method === "get_session_stats") return { path: { userMessages: 1 } };
      if (method === "get_entry") {
        asked.push(`${entryId} ${images}`);
        if (entryId === "large" && images === undefined) throw new AskFailed("message_too_large", "It is too large.");
        if (entryId === "large") return { entry: entry("large", "small", omitted) };
        return { entry: entryId === "small" ? entry("small", "first", small) : entry("first", null) };
      }
      if (images !== "reference") throw new AskFailed("message_too_large", "It is too large.");
      stop.abort();
      const entries = [entry("small", "first", reference("small")), entry("large", "small", reference("large"))];
      return { entries: [...entries, entry("plain", "large")], leafId: "plain" };
    },
  } as unknown as Watch;
  const query = new URLSearchParams({ from: formatPlace({ after: "first", tail: "first" }) ?? "" });
  const request = { path: "events", query, lastEventId: undefined, signal: stop.signal };
  const { body } = await streamEvents({ open: async () => watch } as unknown as Watches, request);
  const events: string[] = [];
  for await (const event of body as AsyncIterable<string>) events.push(event);
  const shown = events.filter((event) => event.includes("event: entry"));
  const parts = /(?<=see )\w+|iVBORw0KGgoSMALL|\[image omitted\]/g;
  const found = shown.map((event) => [...new Set(event.match(parts))].join(" "));
  expect(found).toEqual(["small iVBORw0KGgoSMALL", "large [image omitted]", "plain"]);
  expect(asked).toEqual(["first undefined", "small undefined", "large undefined", "large omit"]);
});
