/** Rules about the order of replies, and that each request has exactly one. */

import { isJsonrpc } from "../combination.ts";
import type { Rule, Theme } from "../rule.ts";
import {
  append,
  beginFork,
  getEntries,
  getState,
  makeAssistant,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
} from "../steps.ts";

/** Requests that are sent together. */
const MANY = 120;

export const orderTheme: Theme = {
  name: "order",
  rules: [
    {
      name: "every-request-answered",
      title: "Every request is answered, however many are sent together.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const commands = ["get_state", "get_entries", "get_tree", "get_messages"];
        const requests = Array.from({ length: MANY }, (_, n) => [commands[n % commands.length]] as const);
        for (const id of conversation.begin(...requests)) await conversation.replyTo(id);
      },
    },
    {
      name: "replies-in-order",
      title: "Replies to commands on the session leave in the order in which the commands arrived.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const ids = conversation.begin(
          ...Array.from({ length: 30 }, (_, n) =>
            n % 3 === 0
              ? (["append", { entries: [makeCustom(n)] }] as const)
              : (["get_entries", { limit: 1 }] as const),
          ),
        );
        for (const id of ids) {
          const reply = await conversation.anyReply();
          if (reply.received.idText !== id)
            throw conversation.broken(`the reply with the id ${id} next`, reply.received.text);
        }
      },
    },
    {
      name: "read-sees-writes",
      title:
        "A read sees every write that was sent before it, whether or not that has been answered, and none after it.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const ids = conversation.begin(
          ...Array.from({ length: 10 }, (_, n) =>
            n % 2 === 0 ? (["append", { entries: [makeCustom(n)] }] as const) : (["get_entries"] as const),
          ),
        );
        for (const [n, id] of ids.entries()) {
          const reply = await conversation.replyTo(id);
          if (n % 2 === 0) void reply.result;
          else reply.must(reply.list("entries").length === (n + 1) / 2, `${(n + 1) / 2} entries`);
        }
      },
    },
    {
      name: "failed-in-order",
      title: "Commands that fail are answered in their order, too, and those after them are run.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const ids = conversation.begin(
          ["append", { entries: [makeCustom(1)] }],
          ["get_entry", { entryId: "nowhere" }],
          ["append", { entries: [makeCustom(2)], expectedLeafId: "elsewhere" }],
          ["append", { entries: [makeCustom(3)] }],
        );
        for (const [n, id] of ids.entries()) {
          const reply = await conversation.anyReply();
          reply.must(reply.received.idText === id, `the reply with the id ${id} next`);
          reply.must(reply.isFailure === (n === 1 || n === 2), n === 1 || n === 2 ? "a failure" : "a result");
        }
        const { entries, reply } = await getEntries(conversation);
        reply.must(JSON.stringify(entries.map(({ data }) => data)) === "[1,3]", "the entries 1 and 3");
      },
    },
    {
      name: "events-after-reply",
      title: "Events that a command causes come directly after its reply.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        await append(conversation, makeUser("Begin"), makeAssistant("Begun"));
        await conversation.settle();
        const ids = conversation.begin(
          ["append", { entries: [makeCustom(1)] }],
          ["append", { entries: [makeCustom(2)] }],
          ["get_entries"],
        );
        for (const [n, id] of ids.entries()) {
          const reply = await conversation.next("a reply");
          if (reply.idText !== id) throw conversation.broken(`the reply with the id ${id}`, reply.text);
          if (n === 2) return;
          const event = await conversation.next("the event session_append");
          if (event.name !== "session_append")
            throw conversation.broken("the event session_append directly after the reply", event.text);
        }
      },
    },
    {
      name: "switch-order",
      title: "When one session replaces another: reply, session_shutdown of the old one, session_start of the new one.",
      source: "Order",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        await conversation.settle();
        const [id] = conversation.begin(["new_session"]);
        const came = [await conversation.next("a reply"), ...(await conversation.settle())];
        const kinds = came.map(({ kind, name, idText }) => name ?? (idText === id ? "reply" : kind)).join(", ");
        if (kinds !== "reply, session_shutdown, session_start")
          throw conversation.broken("reply, session_shutdown, session_start", kinds);
      },
    },
    {
      name: "fork-order",
      title: "When a fork replaces its source: reply, session_shutdown, session_fork, session_start.",
      source: "Order",
      needs: ["fork"],
      async run(context) {
        const conversation = await context.plain();
        const [entryId] = await makeTurns(conversation, "One");
        const source = (await getState(conversation)).sessionId;
        await conversation.settle();
        const [id] = conversation.begin(["fork", { entryId }]);
        const came = [await conversation.next("a reply"), ...(await conversation.settle())];
        const kinds = came.map(({ kind, name, idText }) => name ?? (idText === id ? "reply" : kind)).join(", ");
        if (kinds !== "reply, session_shutdown, session_fork, session_start")
          throw conversation.broken("reply, session_shutdown, session_fork, session_start", kinds);
        const made = (await getState(conversation)).sessionId;
        if (came[1].value.sessionId !== source)
          throw conversation.broken(`session_shutdown of the source ${source}`, came[1].text);
        if (came[3].value.sessionId !== made)
          throw conversation.broken(`session_start of the fork ${made}`, came[3].text);
      },
    },
    {
      name: "commands-wait-for-hook",
      title: "While a hook waits, later commands of the session wait with it.",
      source: "Asking the host",
      needs: ["fork", "rpc.discover"],
      async run(context) {
        const conversation = await context.hooked();
        const {
          ids: [fork, later],
          hook,
        } = await beginFork(conversation, ["get_entries"]);
        // A command that waits for no session is answered meanwhile, so that what waits has had its chance.
        void (await conversation.ask("rpc.discover")).result;
        conversation.answer(hook, {});
        const first = await conversation.anyReply();
        first.must(first.received.idText === fork, "no reply to the later command before that to the fork");
        void (await conversation.replyTo(later)).result;
      },
    },
    {
      name: "server-commands-run",
      title: "Commands with the effect server run concurrently with everything, also with one that waits.",
      source: "Order",
      needs: ["fork", "rpc.discover"],
      async run(context) {
        const conversation = await context.hooked();
        const {
          ids: [fork],
          hook,
        } = await beginFork(conversation);
        void (await conversation.ask("rpc.discover")).result;
        conversation.answer(hook, {});
        void (await conversation.replyTo(fork)).result;
      },
    },
    {
      name: "cancel-waiting",
      title: "$/cancelRequest removes a request that has not started, and answers it with cancelled.",
      source: "Ids",
      needs: ["fork"],
      applies: isJsonrpc,
      async run(context) {
        const conversation = await context.hooked();
        const {
          ids: [fork, later],
          hook,
        } = await beginFork(conversation, ["append", { entries: [makeCustom(1)] }]);
        conversation.send(conversation.dialect.request(undefined, "$/cancelRequest", `{"id":${later}}`));
        conversation.answer(hook, {});
        void (await conversation.replyTo(fork)).result;
        const reply = await conversation.replyTo(later);
        reply.mustFail("cancelled");
        reply.must(reply.failure.number === -32800, "the error -32800");
        const { entries, reply: read } = await getEntries(conversation);
        read.must(!JSON.stringify(entries).includes("conformance"), "nothing of the cancelled append");
      },
    },
    {
      name: "cancel-unknown",
      title: "$/cancelRequest for a request that has been answered does nothing, and is not answered.",
      source: "Ids",
      applies: isJsonrpc,
      async run(context) {
        const conversation = await context.plain();
        const [id] = conversation.begin(["get_state"]);
        void (await conversation.replyTo(id)).result;
        await conversation.settle();
        conversation.send(
          conversation.dialect.request(undefined, "$/cancelRequest", `{"id":${id}}`),
          conversation.dialect.request(undefined, "$/cancelRequest", '{"id":"never-sent"}'),
        );
        const [other] = (await conversation.settle()).filter(({ kind }) => kind !== "event");
        if (other !== undefined) throw conversation.broken("no reply to a cancellation", other.text);
      },
    },
  ],
};

/** Checked after all others, over what every server has said. */
export const oneReply: Rule = {
  name: "one-reply",
  title: "No request is answered twice.",
  source: "Order",
  async run(context) {
    const conversation = await context.plain();
    await makeTurns(conversation, "One");
    for (const command of ["get_state", "get_messages", "get_path", "get_tree", "get_session_stats"])
      void (await conversation.ask(command)).result;
    await conversation.settle();
    const [repeated] = context.conducts.flatMap((conduct) => conduct.repeated);
    if (repeated !== undefined) throw conversation.broken("one reply to each request", repeated);
  },
};
