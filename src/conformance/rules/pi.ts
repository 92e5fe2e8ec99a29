/** Rules about Pi's own line dialect. */

import { isPi } from "../combination.ts";
import type { Rule, Theme } from "../rule.ts";
import { append, makeSession, makeTurns, makeUser } from "../steps.ts";

const rules: readonly Rule[] = [
  {
    name: "pi-reply-shape",
    title: "A reply has the id, the type response, the command and success: true, and its result in data.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      const reply = await conversation.ask("get_fork_messages", { scope: "path" });
      const { type, command, success, data } = reply.received.value;
      reply.must(type === "response", "the type response");
      reply.must(command === "get_fork_messages", "the command get_fork_messages");
      reply.must(success === true, "success: true");
      reply.must(Array.isArray(data?.messages), "the result in data");
    },
  },
  {
    name: "pi-failure-shape",
    title: "A failure has success: false, a sentence in error and its name in code.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      const reply = await conversation.ask("get_entry", { entryId: "nowhere" });
      const { type, command, success, error, code } = reply.received.value;
      reply.must(type === "response" && command === "get_entry", "the type response and the command get_entry");
      reply.must(success === false, "success: false");
      reply.must(typeof error === "string" && error !== "", "a sentence in error");
      reply.must(code === "entry_not_found", "the code entry_not_found");
    },
  },
  {
    name: "pi-unknown-command",
    title: "A command that does not exist fails with the code unknown_command.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      for (const command of ["no_such_command", "toString", ""])
        (await conversation.ask(command)).mustFail("unknown_command");
    },
  },
  {
    name: "pi-unknown-members",
    title: "Members that a command does not know are ignored.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      void (await conversation.ask("get_state", { wish: true, params: { a: 1 } })).result;
    },
  },
  {
    name: "pi-invalid-params",
    title: "Params of a wrong type fail with the code invalid_params.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      (await conversation.ask("get_entry", { entryId: 5 })).mustFail("invalid_params");
      (await conversation.ask("get_entry")).mustFail("invalid_params");
    },
  },
  {
    name: "pi-event-shape",
    title: "Events have their name as type.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      const [id] = await append(conversation, makeUser("Hello"));
      const event = await conversation.take(
        ({ kind, text }) => kind === "event" && text.includes(id),
        "the event session_append with the id of the entry",
      );
      const { type, entryIds, origin } = event.value;
      if (type !== "session_append" || !Array.isArray(entryIds) || origin !== "self")
        throw conversation.broken("the type session_append, with entryIds and origin beside it", event.text);
    },
  },
  {
    name: "pi-tree-nested",
    title: "get_tree returns the nested tree, as Pi does, unless the flat one is requested.",
    source: "get_tree",
    async run(context) {
      const conversation = await context.plain();
      const ids = await makeTurns(conversation, "One");
      const nested = await conversation.ask("get_tree");
      const [root] = nested.list("tree");
      nested.must(root?.entry?.id === ids[0] && Array.isArray(root.children), "a node with entry and children");
      (await conversation.ask("get_tree", { format: "flat" })).list("nodes");
    },
  },
  {
    name: "pi-no-model",
    title: "Commands that need a model or a tool runner fail with unsupported_command.",
    source: "prompt",
    needs: ["prompt", "bash"],
    async run(context) {
      const conversation = await context.plain();
      (await conversation.ask("prompt", { message: "Hello" })).mustFail("unsupported_command");
      (await conversation.ask("bash", { command: "true" })).mustFail("unsupported_command");
    },
  },
];

export const piTheme: Theme = { name: "pi", rules: rules.map((rule) => ({ ...rule, applies: isPi })) };
