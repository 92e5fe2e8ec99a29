/** Rules about single requests of JSON-RPC, and about the errors that answer them. */

import { isJsonrpc } from "../combination.ts";
import { isRecord } from "../dialect.ts";
import type { Rule, Theme } from "../rule.ts";
import {
  append,
  getEntries,
  makeAssistant,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
  mustNotBeAnswered,
} from "../steps.ts";

/** Messages that are JSON but no requests. */
const NO_REQUESTS = [
  '{"jsonrpc":"2.0","id":"no-1"}',
  '{"jsonrpc":"1.0","id":"no-2","method":"get_state"}',
  '{"id":"no-3","method":"get_state"}',
  '{"jsonrpc":"2.0","id":"no-4","method":5}',
  '{"jsonrpc":"2.0","id":"no-5","method":"get_state","params":5}',
  '"get_state"',
  "5",
  "null",
];

const rules: readonly Rule[] = [
  {
    name: "reply-shape",
    title: "A reply has jsonrpc 2.0, an id, and either a result or an error with a number and a sentence.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      const good = await conversation.ask("get_state");
      const { value } = good.received;
      good.must(value.jsonrpc === "2.0", 'jsonrpc "2.0"');
      good.must("result" in value && !("error" in value), "a result and no error");
      const bad = await conversation.ask("get_entry", { entryId: "nowhere" });
      const { error, jsonrpc } = bad.received.value;
      bad.must(jsonrpc === "2.0", 'jsonrpc "2.0"');
      bad.must(isRecord(error) && !("result" in bad.received.value), "an error and no result");
      const isWhole = Number.isInteger(error.code) && typeof error.message === "string" && error.message !== "";
      bad.must(isWhole, "an error with a whole number as its code and a sentence as its message");
    },
  },
  {
    name: "unknown-method",
    title: "A request for a command that does not exist fails with -32601, method_not_found.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      for (const method of ["no_such_command", "toString", "", "$/noSuchCommand"]) {
        const reply = await conversation.ask(method);
        reply.must(reply.failure.number === -32601, "the error -32601");
        reply.mustFail("method_not_found");
      }
    },
  },
  {
    name: "unknown-notification",
    title: "A notification whose method does not exist is ignored.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await conversation.settle();
      conversation.send(
        conversation.dialect.request(undefined, "no_such_command"),
        conversation.dialect.request(undefined, "$/noSuchCommand", { a: 1 }),
      );
      await mustNotBeAnswered(conversation, "a notification");
    },
  },
  {
    name: "notification-runs",
    title: "A notification is run.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      conversation.send(conversation.dialect.request(undefined, "append", { entries: [makeUser("By the way")] }));
      const { entries, reply } = await getEntries(conversation);
      reply.must(entries.length === 1, "the entry that the notification appended");
    },
  },
  {
    name: "notification-unanswered",
    title: "A notification is not answered, whether it succeeds or fails.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      await conversation.settle();
      conversation.send(
        conversation.dialect.request(undefined, "get_state"),
        conversation.dialect.request(undefined, "append", { entries: [makeUser("By the way")] }),
        conversation.dialect.request(undefined, "get_entry", { entryId: "nowhere" }),
        conversation.dialect.request(undefined, "get_entry", { entryId: 5 }),
      );
      await mustNotBeAnswered(conversation, "a notification");
    },
  },
  {
    name: "positional-params",
    title: "An array of params is refused with -32602, invalid_params.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      for (const params of ["[]", '["nowhere"]']) {
        const reply = await conversation.ask("get_entry", params);
        reply.must(reply.failure.number === -32602, "the error -32602");
        reply.mustFail("invalid_params");
      }
    },
  },
  {
    name: "unknown-params",
    title: "Members of the params that a command does not know are refused.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      const reply = await conversation.ask("get_entries", { limit: 1, wish: true });
      reply.mustFail("invalid_params");
      const issues: unknown = reply.failure.data?.issues;
      const isNamed = Array.isArray(issues) && issues.some((issue) => issue?.path === "wish");
      reply.must(isNamed, "an issue with the path `wish`");
    },
  },
  {
    name: "meta-accepted",
    title: "Every command accepts _meta, which belongs to the protocol itself.",
    source: "Dialects",
    async run(context) {
      const conversation = await context.plain();
      for (const command of ["get_state", "get_entries", "get_tree", "new_session"])
        void (await conversation.ask(command, { _meta: { progressToken: "token" } })).result;
    },
  },
  {
    name: "invalid-params",
    title: "Params of a wrong type fail with -32602, and data.issues lists each with its path and a message.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      const reply = await conversation.ask("append", { entries: 5, expectedLeafId: 7 });
      reply.must(reply.failure.number === -32602, "the error -32602");
      reply.mustFail("invalid_params");
      const issues: unknown = reply.failure.data?.issues;
      if (!Array.isArray(issues)) throw reply.broken("the list data.issues");
      const areWhole = issues.every((issue) => typeof issue?.path === "string" && typeof issue?.message === "string");
      reply.must(areWhole, "issues with path and message");
      const paths = issues.map(({ path }) => path);
      reply.must(paths.includes("entries") && paths.includes("expectedLeafId"), "an issue for each of both members");
    },
  },
  {
    name: "invalid-request",
    title: "A message that is JSON but not a request fails with -32600, invalid_request.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      for (const message of NO_REQUESTS) {
        const { id } = JSON.parse(message) ?? {};
        if (id !== undefined) conversation.expectReply(JSON.stringify(id), message);
        conversation.send(message);
        const reply = await conversation.anyReply();
        reply.must(reply.failure.number === -32600, "the error -32600");
        reply.mustFail("invalid_request");
      }
      void (await conversation.ask("get_state")).result;
    },
  },
  {
    name: "error-data",
    title: "error.data always has name and retryable.",
    source: "Errors",
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      const replies = [
        await conversation.ask("get_entry", { entryId: "nowhere" }),
        await conversation.ask("get_entry", {}),
        await conversation.ask("no_such_command"),
        await conversation.ask("append", { entries: [makeCustom(1)], expectedLeafId: "elsewhere" }),
      ];
      for (const reply of replies) {
        const { data } = reply.failure;
        const isWhole = isRecord(data) && typeof data.name === "string" && typeof data.retryable === "boolean";
        reply.must(isWhole, "error.data with the text `name` and the boolean `retryable`");
      }
    },
  },
  {
    name: "failure-numbers",
    title: "Each failure has the number of the table.",
    source: "Failures",
    async run(context) {
      const conversation = await context.plain();
      const [, second] = await makeTurns(conversation, "One");
      const missing = `${context.folder}/missing.jsonl`;
      const expected = [
        [await conversation.ask("get_entry", { entryId: "nowhere" }), "entry_not_found", -32002],
        [await conversation.ask("get_entries", { cursor: "nothing" }), "cursor_expired", -32002],
        [
          await conversation.ask("append", { entries: [makeCustom(1)], expectedLeafId: null }),
          "content_modified",
          -32801,
        ],
        [await conversation.ask("fork", { entryId: second }), "not_a_user_message", -32803],
        [await conversation.ask("switch_session", { sessionPath: missing }), "session_not_found", -32002],
      ] as const;
      for (const [reply, name, number] of expected) {
        reply.mustFail(name);
        reply.must(reply.failure.number === number, `the number ${number}`);
      }
    },
  },
  {
    name: "unsupported-commands",
    title: "Commands that need a model or a tool runner fail with unsupported_command.",
    source: "prompt",
    needs: ["prompt", "bash"],
    async run(context) {
      const conversation = await context.plain();
      (await conversation.ask("prompt", { message: "Hello" })).mustFail("unsupported_command");
      (await conversation.ask("bash", { command: "true" })).mustFail("unsupported_command");
    },
  },
  {
    name: "discover",
    title: "rpc.discover returns an OpenRPC 1.3 document that names every command.",
    source: "rpc.discover",
    needs: ["rpc.discover"],
    async run(context) {
      const conversation = await context.hooked();
      const reply = await conversation.ask("rpc.discover");
      reply.must(/^1\.3\./.test(reply.string("openrpc")), "`openrpc` of the version 1.3");
      const names = reply.list("methods").map((method) => method?.name);
      const { commands = [] } = conversation.introduction?.result.capabilities ?? {};
      const missing = (commands as string[]).filter((name) => !names.includes(name));
      reply.must(missing.length === 0, `the methods ${missing.join(", ")}, which initialize lists`);
    },
  },
  {
    name: "alias",
    title: "compact-append is another name of compact_append.",
    source: "compact_append",
    needs: ["compact_append"],
    async run(context) {
      const conversation = await context.plain();
      await makeSession(conversation);
      const [first] = await append(conversation, makeUser("One"), makeAssistant("1"));
      const params = { summary: "One was said.", firstKeptEntryId: first, tokensBefore: 10 };
      (await conversation.ask("compact-append", params)).string("entryId");
    },
  },
];

export const requestsTheme: Theme = {
  name: "requests",
  rules: rules.map((rule) => ({ ...rule, applies: isJsonrpc })),
};
