/** Rules about single requests of JSON-RPC, and about the errors that answer them. */

import { isJsonrpc } from "../combination.ts";
import { defineTheme, fails, type RowStep, wholly } from "../row.ts";
import { getEntries, makeAssistant, makeCustom, makeUser, mustNotBeAnswered } from "../steps.ts";

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

const WITH_DATA = wholly({ result: "<none>", error: { data: { name: "<text>", retryable: "<flag>" } } });

export const requestsTheme = defineTheme(
  "requests",
  [
    {
      name: "reply-shape",
      title: "A reply has jsonrpc 2.0, an id, and either a result or an error with a number and a sentence.",
      source: "Dialects",
      steps: [
        ["get_state", {}, wholly({ jsonrpc: "2.0", result: "<any>", error: "<none>" })],
        [
          "get_entry",
          { entryId: "nowhere" },
          wholly({ jsonrpc: "2.0", result: "<none>", error: { code: "<whole>", message: "<text>" } }),
        ],
      ],
    },
    {
      name: "unknown-method",
      title: "A request for a command that does not exist fails with -32601, method_not_found.",
      source: "Errors",
      steps: ["no_such_command", "toString", "", "$/noSuchCommand"].map(
        (method): RowStep => [method, {}, fails("method_not_found", -32601)],
      ),
    },
    {
      name: "unknown-notification",
      title: "A notification whose method does not exist is ignored.",
      source: "Dialects",
      async check(conversation) {
        await conversation.settle();
        conversation.notify(["no_such_command"], ["$/noSuchCommand", { a: 1 }]);
        await mustNotBeAnswered(conversation, "a notification");
      },
    },
    {
      name: "notification-runs",
      title: "A notification is run.",
      source: "Dialects",
      given: [],
      async check(conversation) {
        conversation.notify(["append", { entries: [makeUser("By the way")] }]);
        const { entries, reply } = await getEntries(conversation);
        reply.must(entries.length === 1, "the entry that the notification appended");
      },
    },
    {
      name: "notification-unanswered",
      title: "A notification is not answered, whether it succeeds or fails.",
      source: "Dialects",
      given: [],
      async check(conversation) {
        await conversation.settle();
        conversation.notify(
          ["get_state"],
          ["append", { entries: [makeUser("By the way")] }],
          ["get_entry", { entryId: "nowhere" }],
          ["get_entry", { entryId: 5 }],
        );
        await mustNotBeAnswered(conversation, "a notification");
      },
    },
    {
      name: "positional-params",
      title: "An array of params is refused with -32602, invalid_params.",
      source: "Dialects",
      steps: ["[]", '["nowhere"]'].map((params): RowStep => ["get_entry", params, fails("invalid_params", -32602)]),
    },
    {
      name: "unknown-params",
      title: "Members of the params that a command does not know are refused.",
      source: "Dialects",
      async check(conversation) {
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
      steps: ["get_state", "get_entries", "get_tree", "new_session"].map(
        (command): RowStep => [command, { _meta: { progressToken: "token" } }],
      ),
    },
    {
      name: "invalid-params",
      title: "Params of a wrong type fail with -32602, and data.issues lists each with its path and a message.",
      source: "Errors",
      async check(conversation) {
        const reply = await conversation.ask("append", { entries: 5, expectedLeafId: 7 });
        reply.mustFail("invalid_params", -32602);
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
      async check(conversation) {
        for (const message of NO_REQUESTS) {
          const { id } = JSON.parse(message) ?? {};
          if (id !== undefined) conversation.expectReply(JSON.stringify(id), message);
          conversation.send(message);
          (await conversation.anyReply()).mustFail("invalid_request", -32600);
        }
        await conversation.run("get_state");
      },
    },
    {
      name: "error-data",
      title: "error.data always has name and retryable.",
      source: "Errors",
      given: [],
      steps: [
        ["get_entry", { entryId: "nowhere" }, WITH_DATA],
        ["get_entry", {}, WITH_DATA],
        ["no_such_command", {}, WITH_DATA],
        ["append", { entries: [makeCustom(1)], expectedLeafId: "elsewhere" }, WITH_DATA],
      ],
    },
    {
      name: "failure-numbers",
      title: "Each failure has the number of the table.",
      source: "Failures",
      given: ["One"],
      steps: [
        ["get_entry", { entryId: "nowhere" }, fails("entry_not_found", -32002)],
        ["get_entries", { cursor: "nothing" }, fails("cursor_expired", -32002)],
        ["append", { entries: [makeCustom(1)], expectedLeafId: null }, fails("content_modified", -32801)],
        ["fork", { entryId: "<entry-2>" }, fails("not_a_user_message", -32803)],
      ],
      async check(conversation, _ids, { folder }) {
        const reply = await conversation.ask("switch_session", { sessionPath: `${folder}/missing.jsonl` });
        reply.mustFail("session_not_found", -32002);
      },
    },
    {
      name: "discover",
      title: "rpc.discover returns an OpenRPC 1.3 document that names every command.",
      source: "rpc.discover",
      on: "hooked",
      async check(conversation) {
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
      given: [],
      steps: [
        ["append", { entries: [makeUser("One"), makeAssistant("1")] }, { entryIds: ["<first>", "<second>"] }],
        [
          "compact-append",
          { summary: "One was said.", firstKeptEntryId: "<first>", tokensBefore: 10 },
          { entryId: "<text>" },
        ],
      ],
    },
  ],
  isJsonrpc,
);
