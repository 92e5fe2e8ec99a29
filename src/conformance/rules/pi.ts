/** Rules about Pi's own line dialect. */

import { isPi } from "../combination.ts";
import { defineTheme, fails, type RowStep, wholly } from "../row.ts";
import { append, makeUser } from "../steps.ts";

export const piTheme = defineTheme(
  "pi",
  [
    {
      name: "pi-reply-shape",
      title: "A reply has the id, the type response, the command and success: true, and its result in data.",
      source: "Dialects",
      steps: [
        [
          "get_fork_messages",
          { scope: "path" },
          wholly({ type: "response", command: "get_fork_messages", success: true, data: { messages: "<list>" } }),
        ],
      ],
    },
    {
      name: "pi-failure-shape",
      title: "A failure has success: false, a sentence in error and its name in code.",
      source: "Dialects",
      steps: [
        [
          "get_entry",
          { entryId: "nowhere" },
          wholly({ type: "response", command: "get_entry", success: false, error: "<text>", code: "entry_not_found" }),
        ],
      ],
    },
    {
      name: "pi-unknown-command",
      title: "A command that does not exist fails with the code unknown_command.",
      source: "Errors",
      steps: ["no_such_command", "toString", ""].map((command): RowStep => [command, {}, fails("unknown_command")]),
    },
    {
      name: "pi-unknown-members",
      title: "Members that a command does not know are ignored.",
      source: "Dialects",
      steps: [["get_state", { wish: true, params: { a: 1 } }]],
    },
    {
      name: "pi-invalid-params",
      title: "Params of a wrong type fail with the code invalid_params.",
      source: "Errors",
      steps: [
        ["get_entry", { entryId: 5 }, fails("invalid_params")],
        ["get_entry", {}, fails("invalid_params")],
      ],
    },
    {
      name: "pi-event-shape",
      title: "Events have their name as type.",
      source: "Dialects",
      given: [],
      async check(conversation) {
        const [id] = await append(conversation, makeUser("Hello"));
        const event = await conversation.take(
          ({ kind, text }) => kind === "event" && text.includes(id),
          "the event session_append with the id of the entry",
        );
        const { type, entryIds, origin } = event.value;
        const isRight = type === "session_append" && Array.isArray(entryIds) && origin === "self";
        conversation.must(isRight, "the type session_append, with entryIds and origin beside it", event.text);
      },
    },
    {
      name: "pi-tree-nested",
      title: "get_tree returns the nested tree, as Pi does, unless the flat one is requested.",
      source: "get_tree",
      given: ["One"],
      steps: [
        ["get_tree", {}, { tree: [{ entry: { id: "<entry-1>" }, children: "<list>" }] }],
        ["get_tree", { format: "flat" }, { nodes: "<list>" }],
      ],
    },
  ],
  isPi,
);
