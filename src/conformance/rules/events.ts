/** Rules about events. */

import type { Conversation } from "../conversation.ts";
import type { Params, Received } from "../dialect.ts";
import { defineTheme } from "../row.ts";
import { append, isEqual, makeAssistant, makeCustom, makeSession, makeUser, settleEvents } from "../steps.ts";

/** Sends a command and returns the events that come with its reply. */
async function eventsOf(conversation: Conversation, command: string, params: Params): Promise<Received[]> {
  await conversation.settle();
  await conversation.run(command, params);
  return settleEvents(conversation);
}

function textsOf(events: readonly Received[]): string {
  return events.length === 0 ? "no event" : events.map(({ text }) => text).join("  ");
}

export const eventsTheme = defineTheme("events", [
  {
    name: "event-members",
    title: "Every event has sessionId, leafId and seq.",
    source: "Events",
    given: [],
    async check(conversation) {
      await conversation.settle();
      const { leafId } = await conversation.run("append", { entries: [makeUser("Hello")] });
      const { value, text } = await conversation.event("session_append");
      const isWhole = typeof value.sessionId === "string" && Number.isInteger(value.seq) && value.leafId === leafId;
      conversation.must(isWhole, "the text sessionId, the whole number seq, and leafId as in the reply", text);
    },
  },
  {
    name: "append-event",
    title: "session_append names the entries that were appended, with the origin self.",
    source: "session_append",
    given: [],
    async check(conversation) {
      await conversation.settle();
      const ids = await append(conversation, makeUser("One"), makeAssistant("1"));
      const { value, text } = await conversation.event("session_append");
      const isRight = isEqual(value.entryIds, ids) && value.origin === "self";
      conversation.must(isRight, `the entries ${ids.join(", ")} and the origin self`, text);
    },
  },
  {
    name: "tree-event",
    title: "session_tree tells that the leaf moved, from where and to where.",
    source: "session_tree",
    given: ["One"],
    async check(conversation, [first, second]) {
      const came = await eventsOf(conversation, "branch", { entryId: first });
      const { value } = came.find(({ name }) => name === "session_tree") ?? {};
      const isRight = value?.newLeafId === first && value?.oldLeafId === second;
      conversation.must(isRight, `session_tree from ${second} to ${first}`, textsOf(came));
    },
  },
  {
    name: "compact-event",
    title: "session_compact comes with the compaction that was appended, after session_append.",
    source: "session_compact",
    given: ["One", "Two"],
    async check(conversation, [, , third]) {
      const params = { summary: "One was said.", firstKeptEntryId: third, tokensBefore: 10 };
      const came = await eventsOf(conversation, "compact_append", params);
      const names = came.map(({ name }) => name).join(", ");
      const expected = "session_append, session_compact";
      conversation.must(names === expected, expected, textsOf(came));
      const isThere = came[1].value.compactionEntry?.summary === "One was said.";
      conversation.must(isThere, "the entry with its summary", textsOf(came));
    },
  },
  {
    name: "name-event",
    title: "session_info_changed tells the session's new display name.",
    source: "session_info_changed",
    given: ["One"],
    async check(conversation) {
      const came = await eventsOf(conversation, "set_session_name", { name: "Two\nlines" });
      const { value } = came.find(({ name }) => name === "session_info_changed") ?? {};
      const expected = 'session_info_changed with the name "Two lines"';
      conversation.must(value?.name === "Two lines", expected, textsOf(came));
    },
  },
  {
    name: "failed-without-events",
    title: "A command that fails causes no events.",
    source: "Events",
    given: ["One"],
    async check(conversation) {
      await conversation.settle();
      const failing = { entries: [makeCustom(1)], expectedLeafId: "elsewhere" };
      (await conversation.ask("append", failing)).mustFail("content_modified");
      const came = await settleEvents(conversation);
      conversation.must(came.length === 0, "no event", textsOf(came));
    },
  },
  {
    name: "chosen-events",
    title: "A host that names events in initialize gets only these.",
    source: "initialize",
    on: "modest",
    async check(conversation) {
      await makeSession(conversation);
      await append(conversation, makeUser("Hello"));
      await conversation.run("set_session_name", { name: "Quiet" });
      const came = await settleEvents(conversation);
      const isOnly = came.every(({ name }) => name === "session_append");
      conversation.must(isOnly && came.length > 0, "session_append and no other event", textsOf(came));
    },
  },
]);
