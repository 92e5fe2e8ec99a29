/** Rules about batches of JSON-RPC. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation, Request } from "../conversation.ts";
import type { Reply } from "../reply.ts";
import { defineTheme } from "../row.ts";
import { append, getEntries, makeCustom, makeUser, mustNotBeAnswered } from "../steps.ts";

/** Sends a batch and returns the ids of its requests. */
function sendBatch(conversation: Conversation, ...requests: readonly Request[]): string[] {
  const made = requests.map(([command, params]) => conversation.request(command, params));
  conversation.send(`[${made.map(({ text }) => text).join(",")}]`);
  return made.map(({ id }) => id);
}

function textsOf(replies: readonly Reply[]): string {
  return `[${replies.map(({ received }) => received.text).join(",")}]`;
}

/** Returns the one reply of the next array. */
async function onlyReply(conversation: Conversation, id: string): Promise<Reply> {
  const replies = await conversation.batch();
  const isWhole = replies.length === 1 && replies[0].received.idText === id;
  conversation.must(isWhole, "an array with the one reply", textsOf(replies));
  return replies[0];
}

function byTheWay(conversation: Conversation): string {
  return conversation.dialect.request(undefined, "append", { entries: [makeUser("By the way")] });
}

export const batchesTheme = defineTheme(
  "batches",
  [
    {
      name: "batch-array",
      title: "A batch is answered by one array with one reply to each request.",
      source: "Dialects",
      async check(conversation) {
        const ids = sendBatch(conversation, ["get_state"], ["get_entries"], ["no_such_command"], ["get_tree"]);
        const replies = await conversation.batch();
        const answered = replies.map(({ received }) => received.idText);
        for (const id of ids) {
          const times = answered.filter((other) => other === id).length;
          conversation.must(times === 1, `one reply with the id ${id}`, textsOf(replies));
        }
        conversation.must(replies.length === ids.length, `${ids.length} replies`, textsOf(replies));
      },
    },
    {
      name: "batch-one",
      title: "A batch of one request is answered by an array, too.",
      source: "Dialects",
      async check(conversation) {
        const [id] = sendBatch(conversation, ["get_state"]);
        await onlyReply(conversation, id);
      },
    },
    {
      name: "batch-notifications",
      title: "Notifications in a batch are run and have no reply in the array.",
      source: "Dialects",
      given: [],
      async check(conversation) {
        const { id, text } = conversation.request("get_entries");
        conversation.send(`[${byTheWay(conversation)},${text}]`);
        const reply = await onlyReply(conversation, id);
        reply.must(reply.list("entries").length === 1, "the entry that the notification appended");
      },
    },
    {
      name: "batch-only-notifications",
      title: "A batch of notifications is not answered at all.",
      source: "Dialects",
      given: [],
      async check(conversation) {
        await conversation.settle();
        conversation.send(`[${byTheWay(conversation)},${byTheWay(conversation)}]`);
        await mustNotBeAnswered(conversation, "notifications");
      },
    },
    {
      name: "batch-empty",
      title: "An empty batch is answered by one error -32600 that is in no array.",
      source: "Errors",
      async check(conversation) {
        conversation.send("[]");
        (await conversation.anyReply()).mustFail(-32600);
      },
    },
    {
      name: "batch-invalid",
      title: "Each member of a batch that is no request is answered in the array with -32600, the others as usual.",
      source: "Errors",
      async check(conversation) {
        const { id, text } = conversation.request("get_state");
        conversation.send(`[1,${text},{"a":2},[]]`);
        const replies = await conversation.batch();
        const refused = replies.filter(({ isFailure }) => isFailure);
        const good = replies.filter(({ isFailure }) => !isFailure);
        const areRefused = refused.length === 3 && refused.every(({ failure }) => failure.number === -32600);
        const isWhole = areRefused && good.length === 1 && good[0].received.idText === id;
        conversation.must(isWhole, "three errors -32600 and one result", textsOf(replies));
      },
    },
    {
      name: "batch-order",
      title: "The commands of a batch take effect in their order.",
      source: "Order",
      given: [],
      async check(conversation) {
        const appending = (n: number): Request => ["append", { entries: [makeCustom(n)] }];
        const ids = sendBatch(conversation, appending(1), ["get_entries"], appending(2), ["get_entries"]);
        const replies = await conversation.batch();
        for (const count of [1, 2]) {
          const id = ids[2 * count - 1];
          const reply = replies.find(({ received }) => received.idText === id);
          if (reply === undefined) throw conversation.broken(`a reply with the id ${id}`, textsOf(replies));
          reply.must(reply.list("entries").length === count, `${count} entries`);
        }
      },
    },
    {
      name: "batch-events",
      title: "Events that the commands of a batch cause come after the whole array.",
      source: "Order",
      given: [],
      async check(conversation) {
        await append(conversation, makeCustom(0));
        await conversation.settle();
        sendBatch(conversation, ["append", { entries: [makeCustom(1)] }], ["append", { entries: [makeCustom(2)] }]);
        const came = [await conversation.next("an array of replies"), ...(await conversation.settle())];
        const kinds = came.map(({ kind, name }) => name ?? kind).join(", ");
        const expected = "batch, session_append, session_append";
        conversation.must(kinds === expected, "the array, then session_append twice", kinds);
      },
    },
    {
      name: "batch-with-others",
      title: "Requests before and after a batch are answered as usual.",
      source: "Dialects",
      async check(conversation) {
        await getEntries(conversation);
        const [before, within, after] = [1, 2, 3].map(() => conversation.request("get_state"));
        conversation.send(before.text, `[${within.text}]`, after.text);
        void (await conversation.replyTo(before.id)).result;
        await conversation.batch();
        void (await conversation.replyTo(after.id)).result;
      },
    },
  ],
  isJsonrpc,
);
