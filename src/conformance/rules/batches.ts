/** Rules about batches of JSON-RPC. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation, Request } from "../conversation.ts";
import type { Reply } from "../reply.ts";
import type { Rule, Theme } from "../rule.ts";
import { append, getEntries, makeCustom, makeSession, makeUser } from "../steps.ts";

const rules: readonly Rule[] = [
  {
    name: "batch-array",
    title: "A batch is answered by one array with one reply to each request.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      const ids = sendBatch(conversation, ["get_state"], ["get_entries"], ["no_such_command"], ["get_tree"]);
      const replies = await conversation.batch();
      const answered = replies.map(({ received }) => received.idText);
      for (const id of ids)
        if (answered.filter((other) => other === id).length !== 1)
          throw conversation.broken(`one reply with the id ${id}`, textsOf(replies));
      if (replies.length !== ids.length) throw conversation.broken(`${ids.length} replies`, textsOf(replies));
    },
  },
  {
    name: "batch-one",
    title: "A batch of one request is answered by an array, too.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      const [id] = sendBatch(conversation, ["get_state"]);
      const replies = await conversation.batch();
      const isWhole = replies.length === 1 && replies[0].received.idText === id;
      if (!isWhole) throw conversation.broken("an array with the one reply", textsOf(replies));
    },
  },
  {
    name: "batch-notifications",
    title: "Notifications in a batch are run and have no reply in the array.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      const { id, text } = conversation.request("get_entries");
      const note = conversation.dialect.request(undefined, "append", { entries: [makeUser("By the way")] });
      conversation.send(`[${note},${text}]`);
      const replies = await conversation.batch();
      const isWhole = replies.length === 1 && replies[0].received.idText === id;
      if (!isWhole) throw conversation.broken("an array with the one reply", textsOf(replies));
      replies[0].must(replies[0].list("entries").length === 1, "the entry that the notification appended");
    },
  },
  {
    name: "batch-only-notifications",
    title: "A batch of notifications is not answered at all.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      await conversation.settle();
      const note = conversation.dialect.request(undefined, "append", { entries: [makeUser("By the way")] });
      conversation.send(`[${note},${note}]`);
      const [other] = (await conversation.settle()).filter(({ kind }) => kind !== "event");
      if (other !== undefined) throw conversation.broken("no reply to notifications", other.text);
    },
  },
  {
    name: "batch-empty",
    title: "An empty batch is answered by one error -32600 that is in no array.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      conversation.send("[]");
      const reply = await conversation.anyReply();
      reply.must(reply.failure.number === -32600, "the error -32600");
    },
  },
  {
    name: "batch-invalid",
    title: "Each member of a batch that is no request is answered in the array with -32600, the others as usual.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      const { id, text } = conversation.request("get_state");
      conversation.send(`[1,${text},{"a":2},[]]`);
      const replies = await conversation.batch();
      const refused = replies.filter(({ isFailure }) => isFailure);
      const good = replies.filter(({ isFailure }) => !isFailure);
      const areRefused = refused.length === 3 && refused.every(({ failure }) => failure.number === -32600);
      const isWhole = areRefused && good.length === 1 && good[0].received.idText === id;
      if (!isWhole) throw conversation.broken("three errors -32600 and one result", textsOf(replies));
    },
  },
  {
    name: "batch-order",
    title: "The commands of a batch take effect in their order.",
    source: "Order",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      const [, before, , after] = sendBatch(
        conversation,
        ["append", { entries: [makeCustom(1)] }],
        ["get_entries"],
        ["append", { entries: [makeCustom(2)] }],
        ["get_entries"],
      );
      const replies = await conversation.batch();
      for (const [id, count] of [[before, 1] as const, [after, 2] as const]) {
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
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      await append(conversation, makeCustom(0));
      await conversation.settle();
      sendBatch(conversation, ["append", { entries: [makeCustom(1)] }], ["append", { entries: [makeCustom(2)] }]);
      const came = [await conversation.next("an array of replies"), ...(await conversation.settle())];
      const kinds = came.map(({ kind, name }) => name ?? kind).join(", ");
      if (kinds !== "batch, session_append, session_append")
        throw conversation.broken("the array, then session_append twice", kinds);
    },
  },
  {
    name: "batch-with-others",
    title: "Requests before and after a batch are answered as usual.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await getEntries(conversation);
      const before = conversation.request("get_state");
      const within = conversation.request("get_state");
      const after = conversation.request("get_state");
      conversation.send(before.text, `[${within.text}]`, after.text);
      void (await conversation.replyTo(before.id)).result;
      await conversation.batch();
      void (await conversation.replyTo(after.id)).result;
    },
  },
];

export const batchesTheme: Theme = {
  name: "batches",
  rules: rules.map((rule) => ({ ...rule, applies: isJsonrpc })),
};

/** Sends a batch and returns the ids of its requests. */
function sendBatch(conversation: Conversation, ...requests: readonly Request[]): string[] {
  const made = requests.map(([command, params]) => conversation.request(command, params));
  conversation.send(`[${made.map(({ text }) => text).join(",")}]`);
  return made.map(({ id }) => id);
}

function textsOf(replies: readonly Reply[]): string {
  return `[${replies.map(({ received }) => received.text).join(",")}]`;
}
