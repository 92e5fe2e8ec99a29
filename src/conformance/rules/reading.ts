/** Rules about what reads return. */

import { defineTheme, fails, withIds } from "../row.ts";
import { append, getEntries, isEqual, makeAssistant, makeCustom, makeUser } from "../steps.ts";

/** Messages in an answer to get_fork_messages. */
const ONE = { entryId: "<entry-1>", text: "One" };
const THREE = { entryId: "<three>", text: "Three" };

const SUMMARY = { role: "compactionSummary", summary: "One and two.", tokensBefore: 100 };

export const readingTheme = defineTheme("reading", [
  {
    name: "entries-in-order",
    title: "get_entries returns the entries of all branches in file order; since leaves out those before.",
    source: "get_entries",
    given: ["One", "Two"],
    steps: [
      ["branch", { entryId: "<entry-1>" }],
      ["append", { entries: [makeUser("Three")] }, { entryIds: ["<three>"] }],
      [
        "get_entries",
        { types: ["message"] },
        { entries: withIds("<entry-1>", "<entry-2>", "<entry-3>", "<entry-4>", "<three>") },
      ],
      ["get_entries", { since: "<entry-3>", types: ["message"] }, { entries: withIds("<entry-4>", "<three>") }],
    ],
  },
  {
    name: "get-entry",
    title: "get_entry returns an entry, the ids of its children and its label.",
    source: "get_entry",
    given: ["One"],
    async check(conversation, [first, second]) {
      await conversation.run("set_label", { entryId: first, label: "begin" });
      await conversation.run("branch", { entryId: first });
      const [third] = await append(conversation, makeAssistant("Another answer"));
      const reply = await conversation.ask("get_entry", { entryId: first });
      const { entry, label } = reply.result;
      reply.must(entry?.id === first && entry.message?.content === "One", "the entry");
      const children: unknown[] = reply.list("childIds");
      reply.must(children.includes(second) && children.includes(third), `the children ${second} and ${third}`);
      reply.must(label === "begin", "the label begin");
      (await conversation.ask("get_entry", { entryId: "nowhere" })).mustFail("entry_not_found");
    },
  },
  {
    name: "get-path",
    title: "get_path returns the entries from the root to an entry, the leaf by default.",
    source: "get_path",
    given: ["One", "Two"],
    steps: [
      ["get_path", {}, { entries: withIds("<entry-1>", "<entry-2>", "<entry-3>", "<entry-4>") }],
      ["get_path", { entryId: "<entry-2>" }, { entries: withIds("<entry-1>", "<entry-2>") }],
    ],
  },
  {
    name: "tree-flat",
    title: "The flat tree has every entry with its parent and the number of its children, and the leaf.",
    source: "get_tree",
    given: ["One", "Two"],
    async check(conversation, [first]) {
      await conversation.run("branch", { entryId: first });
      const [last] = await append(conversation, makeAssistant("Another answer"));
      const { entries } = await getEntries(conversation);
      const reply = await conversation.ask("get_tree", { format: "flat" });
      const parents = entries.map(({ parentId = null }) => parentId);
      const expected = entries.map(({ id }, n) => [id, parents[n], parents.filter((parent) => parent === id).length]);
      const nodes = reply.list("nodes").map(({ id, parentId, childCount }) => [id, parentId, childCount]);
      reply.must(isEqual(nodes, expected), "each entry in file order, with its parent and the number of its children");
      reply.must(reply.result.leafId === last, `the leaf ${last}`);
    },
  },
  {
    name: "messages-of-path",
    title: "get_messages returns what the model sees at the leaf, oldest first, without state of extensions.",
    source: "get_messages",
    given: ["One", "Two"],
    steps: [
      ["branch", { entryId: "<entry-2>" }],
      ["append", { entries: [makeCustom({ hidden: true }), makeUser("Three")] }],
      [
        "get_messages",
        {},
        { messages: [{ role: "user", content: "One" }, { role: "assistant" }, { role: "user", content: "Three" }] },
      ],
    ],
  },
  {
    name: "context-compacted",
    title: "After a compaction, what the model sees begins with its summary and the first kept entry.",
    source: "compact_append",
    given: ["One", "Two", "Three"],
    steps: [
      ["compact_append", { summary: "One and two.", firstKeptEntryId: "<entry-5>", tokensBefore: 100 }],
      ["get_messages", {}, { messages: [SUMMARY, { content: "Three" }, { role: "assistant" }] }],
      [
        "get_context",
        { leafId: "<entry-6>" },
        { messages: Array(6).fill({}), entryIds: [1, 2, 3, 4, 5, 6].map((n) => `<entry-${n}>`) },
      ],
    ],
  },
  {
    name: "context-edited",
    title: "edit_context changes what the model sees of an entry, and not the entry.",
    source: "edit_context",
    given: ["A long listing"],
    steps: [
      ["edit_context", { targetId: "<entry-1>", replacement: { content: "(left out)" } }],
      ["get_messages", {}, { messages: [{ content: "(left out)" }, { role: "assistant" }] }],
      ["get_entry", { entryId: "<entry-1>" }, { entry: { message: { content: "A long listing" } } }],
      ["edit_context", { targetId: "<entry-2>", replacement: null }],
      ["get_messages", {}, { messages: [{ content: "(left out)" }] }],
    ],
  },
  {
    name: "fork-messages",
    title: "get_fork_messages returns the user messages in file order, of all branches or of the path.",
    source: "get_fork_messages",
    given: ["One", "Two"],
    steps: [
      ["branch", { entryId: "<entry-2>" }],
      ["append", { entries: [makeUser("Three")] }, { entryIds: ["<three>"] }],
      ["get_fork_messages", {}, { messages: [ONE, { entryId: "<entry-3>", text: "Two" }, THREE] }],
      ["get_fork_messages", { scope: "path" }, { messages: [ONE, THREE] }],
    ],
  },
  {
    name: "last-assistant-text",
    title: "get_last_assistant_text returns the text of the last assistant message on the path, or null.",
    source: "get_last_assistant_text",
    given: [],
    async check(conversation) {
      const none = await conversation.ask("get_last_assistant_text");
      none.must((none.result?.text ?? null) === null, "null in an empty session");
      const said = [makeUser("One"), makeAssistant("First"), makeUser("Two"), makeAssistant("Last")];
      const [, second] = await append(conversation, ...said);
      const last = await conversation.ask("get_last_assistant_text");
      last.must(last.string("text") === "Last", "the text of the last answer");
      await conversation.run("branch", { entryId: second });
      const before = await conversation.ask("get_last_assistant_text");
      before.must(before.string("text") === "First", "the text of the last answer of the path");
    },
  },
  {
    name: "stats-count",
    title: "get_session_stats counts messages and tokens over all branches.",
    source: "get_session_stats",
    given: ["One", "Two"],
    steps: [
      ["branch", { entryId: "<entry-2>" }],
      ["append", { entries: [makeUser("Three")] }],
      ["get_session_stats", {}, { userMessages: 3, assistantMessages: 2, tokens: { input: 20, output: 10 } }],
    ],
  },
  {
    name: "compaction-prepared",
    title: "prepare_compaction returns a first kept entry that compact_append accepts, and changes nothing.",
    source: "prepare_compaction",
    given: ["One", "Two", "Three"],
    async check(conversation) {
      const before = (await getEntries(conversation)).reply.textAt("entries");
      const prepared = await conversation.ask("prepare_compaction", { keepRecentTokens: 1 });
      const firstKeptEntryId = prepared.string("firstKeptEntryId");
      prepared.must((await getEntries(conversation)).reply.textAt("entries") === before, "no change");
      const { tokensBefore } = prepared.result;
      await conversation.run("compact_append", { summary: "So far.", firstKeptEntryId, tokensBefore });
    },
  },
  {
    name: "unsupported-commands",
    title: "Commands that need a model or a tool runner fail with unsupported_command.",
    source: "prompt",
    steps: [
      ["prompt", { message: "Hello" }, fails("unsupported_command")],
      ["bash", { command: "true" }, fails("unsupported_command")],
    ],
  },
  {
    name: "branch-prepared",
    title: "prepare_branch_summary returns what a move of the leaf leaves, and changes nothing.",
    source: "prepare_branch_summary",
    given: ["One", "Two"],
    steps: [
      [
        "prepare_branch_summary",
        { targetId: "<entry-2>" },
        { entriesToSummarize: withIds("<entry-3>", "<entry-4>"), commonAncestorId: "<entry-2>" },
      ],
      ["get_entries", {}, { leafId: "<entry-4>" }],
    ],
  },
]);
