/** Rules about events. */

import type { Conversation } from "../conversation.ts";
import type { Params, Received } from "../dialect.ts";
import type { Theme } from "../rule.ts";
import { append, makeAssistant, makeCustom, makeSession, makeTurns, makeUser } from "../steps.ts";

/** Sends a command and returns the events that come with its reply. */
async function eventsOf(conversation: Conversation, command: string, params: Params): Promise<Received[]> {
  await conversation.settle();
  void (await conversation.ask(command, params)).result;
  return (await conversation.settle()).filter(({ kind }) => kind === "event");
}

function textsOf(events: readonly Received[]): string {
  return events.length === 0 ? "no event" : events.map(({ text }) => text).join("  ");
}

export const eventsTheme: Theme = {
  name: "events",
  rules: [
    {
      name: "event-members",
      title: "Every event has sessionId, leafId and seq.",
      source: "Events",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        await conversation.settle();
        const { result } = await conversation.ask("append", { entries: [makeUser("Hello")] });
        const { value, text } = await conversation.event("session_append");
        const isWhole = typeof value.sessionId === "string" && Number.isInteger(value.seq);
        if (!isWhole || value.leafId !== result.leafId)
          throw conversation.broken("the text sessionId, the whole number seq, and leafId as in the reply", text);
      },
    },
    {
      name: "append-event",
      title: "session_append names the entries that were appended, with the origin self.",
      source: "session_append",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        await conversation.settle();
        const ids = await append(conversation, makeUser("One"), makeAssistant("1"));
        const { value, text } = await conversation.event("session_append");
        if (JSON.stringify(value.entryIds) !== JSON.stringify(ids) || value.origin !== "self")
          throw conversation.broken(`the entries ${ids.join(", ")} and the origin self`, text);
      },
    },
    {
      name: "tree-event",
      title: "session_tree tells that the leaf moved, from where and to where.",
      source: "session_tree",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const [first, second] = await makeTurns(conversation, "One");
        const came = await eventsOf(conversation, "branch", { entryId: first });
        const { value } = came.find(({ name }) => name === "session_tree") ?? {};
        if (value?.newLeafId !== first || value?.oldLeafId !== second)
          throw conversation.broken(`session_tree from ${second} to ${first}`, textsOf(came));
      },
    },
    {
      name: "compact-event",
      title: "session_compact comes with the compaction that was appended, after session_append.",
      source: "session_compact",
      needs: ["compact_append"],
      async run(context) {
        const conversation = await context.plain();
        const [, , third] = await makeTurns(conversation, "One", "Two");
        const params = { summary: "One was said.", firstKeptEntryId: third, tokensBefore: 10 };
        const came = await eventsOf(conversation, "compact_append", params);
        const names = came.map(({ name }) => name).join(", ");
        if (names !== "session_append, session_compact")
          throw conversation.broken("session_append, session_compact", textsOf(came));
        if (came[1].value.compactionEntry?.summary !== "One was said.")
          throw conversation.broken("the entry with its summary", textsOf(came));
      },
    },
    {
      name: "name-event",
      title: "session_info_changed tells the session's new display name.",
      source: "session_info_changed",
      needs: ["set_session_name"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const came = await eventsOf(conversation, "set_session_name", { name: "Two\nlines" });
        const { value } = came.find(({ name }) => name === "session_info_changed") ?? {};
        if (value?.name !== "Two lines")
          throw conversation.broken('session_info_changed with the name "Two lines"', textsOf(came));
      },
    },
    {
      name: "failed-without-events",
      title: "A command that fails causes no events.",
      source: "Events",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        await conversation.settle();
        const failing = { entries: [makeCustom(1)], expectedLeafId: "elsewhere" };
        (await conversation.ask("append", failing)).mustFail("content_modified");
        const [event] = (await conversation.settle()).filter(({ kind }) => kind === "event");
        if (event !== undefined) throw conversation.broken("no event", event.text);
      },
    },
    {
      name: "chosen-events",
      title: "A host that names events in initialize gets only these.",
      source: "initialize",
      async run(context) {
        const conversation = await context.modest();
        await makeSession(conversation);
        await append(conversation, makeUser("Hello"));
        void (await conversation.ask("set_session_name", { name: "Quiet" })).result;
        const came = (await conversation.settle()).filter(({ kind }) => kind === "event");
        const others = came.filter(({ name }) => name !== "session_append");
        if (others.length > 0) throw conversation.broken("no other event than session_append", others[0].text);
        if (came.length === 0) throw conversation.broken("the event session_append", "nothing");
      },
    },
  ],
};
