/** Rules about the order of replies, and that each request has exactly one. */

import { isJsonrpc } from "../combination.ts";
import type { Conversation, Request } from "../conversation.ts";
import type { Received } from "../dialect.ts";
import { defineTheme } from "../row.ts";
import type { Rule } from "../rule.ts";
import {
  append,
  beginFork,
  getEntries,
  getState,
  makeAssistant,
  makeCustom,
  makeTurns,
  makeUser,
  mustNotBeAnswered,
} from "../steps.ts";

/** Requests that are sent together. */
const MANY = 120;

const appending = (n: number): Request => ["append", { entries: [makeCustom(n)] }];

/** Sends a request and returns its reply with the messages after it, which must be of these kinds and names. */
async function mustCome(conversation: Conversation, request: Request, expected: string): Promise<Received[]> {
  await conversation.settle();
  const [id] = conversation.begin(request);
  const came = [await conversation.next("a reply"), ...(await conversation.settle())];
  const kinds = came.map(({ kind, name, idText }) => name ?? (idText === id ? "reply" : kind)).join(", ");
  conversation.must(kinds === expected, expected, kinds);
  return came;
}

export const orderTheme = defineTheme("order", [
  {
    name: "every-request-answered",
    title: "Every request is answered, however many are sent together.",
    source: "Order",
    given: ["One"],
    async check(conversation) {
      const commands = ["get_state", "get_entries", "get_tree", "get_messages"];
      const requests = Array.from({ length: MANY }, (_, n) => [commands[n % commands.length]] as const);
      for (const id of conversation.begin(...requests)) await conversation.replyTo(id);
    },
  },
  {
    name: "replies-in-order",
    title: "Replies to commands on the session leave in the order in which the commands arrived.",
    source: "Order",
    given: [],
    async check(conversation) {
      const requests = Array.from(
        { length: 30 },
        (_, n): Request => (n % 3 === 0 ? appending(n) : ["get_entries", { limit: 1 }]),
      );
      for (const id of conversation.begin(...requests)) {
        const { received } = await conversation.anyReply();
        conversation.must(received.idText === id, `the reply with the id ${id} next`, received.text);
      }
    },
  },
  {
    name: "read-sees-writes",
    title: "A read sees every write that was sent before it, whether or not that has been answered, and none after it.",
    source: "Order",
    given: [],
    async check(conversation) {
      const requests = Array.from({ length: 10 }, (_, n): Request => (n % 2 === 0 ? appending(n) : ["get_entries"]));
      for (const [n, id] of conversation.begin(...requests).entries()) {
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
    given: [],
    async check(conversation) {
      const ids = conversation.begin(
        appending(1),
        ["get_entry", { entryId: "nowhere" }],
        ["append", { entries: [makeCustom(2)], expectedLeafId: "elsewhere" }],
        appending(3),
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
    given: [],
    async check(conversation) {
      await append(conversation, makeUser("Begin"), makeAssistant("Begun"));
      await conversation.settle();
      const ids = conversation.begin(appending(1), appending(2), ["get_entries"]);
      for (const [n, id] of ids.entries()) {
        const reply = await conversation.next("a reply");
        conversation.must(reply.idText === id, `the reply with the id ${id}`, reply.text);
        if (n === 2) return;
        const { name, text } = await conversation.next("the event session_append");
        conversation.must(name === "session_append", "the event session_append directly after the reply", text);
      }
    },
  },
  {
    name: "switch-order",
    title: "When one session replaces another: reply, session_shutdown of the old one, session_start of the new one.",
    source: "Order",
    given: ["One"],
    async check(conversation) {
      await mustCome(conversation, ["new_session"], "reply, session_shutdown, session_start");
    },
  },
  {
    name: "fork-order",
    title: "When a fork replaces its source: reply, session_shutdown, session_fork, session_start.",
    source: "Order",
    given: ["One"],
    async check(conversation, [entryId]) {
      const source = (await getState(conversation)).sessionId;
      const expected = "reply, session_shutdown, session_fork, session_start";
      const [, shutdown, , start] = await mustCome(conversation, ["fork", { entryId }], expected);
      const made = (await getState(conversation)).sessionId;
      const isEnded = shutdown.value.sessionId === source;
      conversation.must(isEnded, `session_shutdown of the source ${source}`, shutdown.text);
      conversation.must(start.value.sessionId === made, `session_start of the fork ${made}`, start.text);
    },
  },
  {
    name: "commands-wait-for-hook",
    title: "While a hook waits, later commands of the session wait with it; those with the effect server are answered.",
    source: "Asking the host",
    on: "hooked",
    async check(conversation) {
      const { ids, hook } = await beginFork(conversation, ["get_entries"]);
      const [fork, later] = ids;
      // A command that waits for no session is answered meanwhile, so that what waits has had its chance.
      await conversation.run("rpc.discover");
      conversation.answer(hook, {});
      const first = await conversation.anyReply();
      first.must(first.received.idText === fork, "no reply to the later command before that to the fork");
      void (await conversation.replyTo(later)).result;
    },
  },
  {
    name: "cancel-waiting",
    title: "$/cancelRequest removes a request that has not started, and answers it with cancelled.",
    source: "Ids",
    applies: isJsonrpc,
    on: "hooked",
    async check(conversation) {
      const { ids, hook } = await beginFork(conversation, appending(1));
      const [fork, later] = ids;
      conversation.notify(["$/cancelRequest", `{"id":${later}}`]);
      conversation.answer(hook, {});
      void (await conversation.replyTo(fork)).result;
      (await conversation.replyTo(later)).mustFail("cancelled", -32800);
      const { entries, reply } = await getEntries(conversation);
      reply.must(!JSON.stringify(entries).includes("conformance"), "nothing of the cancelled append");
    },
  },
  {
    name: "cancel-unknown",
    title: "$/cancelRequest for a request that has been answered does nothing, and is not answered.",
    source: "Ids",
    applies: isJsonrpc,
    async check(conversation) {
      const [id] = conversation.begin(["get_state"]);
      void (await conversation.replyTo(id)).result;
      await conversation.settle();
      conversation.notify(["$/cancelRequest", `{"id":${id}}`], ["$/cancelRequest", '{"id":"never-sent"}']);
      await mustNotBeAnswered(conversation, "a cancellation");
    },
  },
]);

/** Checked after all others, over what every server has said. */
export const oneReply: Rule = {
  name: "one-reply",
  title: "No request is answered twice.",
  source: "Order",
  async run(context) {
    const conversation = await context.plain();
    await makeTurns(conversation, "One");
    for (const command of ["get_state", "get_messages", "get_path", "get_tree", "get_session_stats"])
      await conversation.run(command);
    await conversation.settle();
    const [repeated] = context.conducts.flatMap((conduct) => conduct.repeated);
    if (repeated !== undefined) throw conversation.broken("one reply to each request", repeated);
  },
};
