/** Rules about what reads return. */

import type { WireValue } from "../dialect.ts";
import type { Theme } from "../rule.ts";
import {
  append,
  getEntries,
  getIds,
  isEqual,
  makeAssistant,
  makeCustom,
  makeSession,
  makeTurns,
  makeUser,
} from "../steps.ts";

export const readingTheme: Theme = {
  name: "reading",
  rules: [
    {
      name: "entries-in-order",
      title: "get_entries returns the entries of all branches in file order; since leaves out those before.",
      source: "get_entries",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        void (await conversation.ask("branch", { entryId: ids[0] })).result;
        ids.push(...(await append(conversation, makeUser("Three"))));
        const { entries, reply } = await getEntries(conversation);
        const messages = entries.filter(({ type }) => type === "message");
        reply.must(isEqual(getIds(messages), ids), `the messages ${ids.join(", ")}`);
        const later = await conversation.ask("get_entries", { since: ids[2], types: ["message"] });
        later.must(isEqual(getIds(later.list("entries")), ids.slice(3)), `the messages ${ids.slice(3).join(", ")}`);
      },
    },
    {
      name: "get-entry",
      title: "get_entry returns an entry, the ids of its children and its label.",
      source: "get_entry",
      needs: ["set_label", "branch"],
      async run(context) {
        const conversation = await context.plain();
        const [first, second] = await makeTurns(conversation, "One");
        void (await conversation.ask("set_label", { entryId: first, label: "begin" })).result;
        void (await conversation.ask("branch", { entryId: first })).result;
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
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        const whole = await conversation.ask("get_path");
        whole.must(isEqual(getIds(whole.list("entries")), ids), `the entries ${ids.join(", ")}`);
        const part = await conversation.ask("get_path", { entryId: ids[1] });
        part.must(isEqual(getIds(part.list("entries")), ids.slice(0, 2)), `the entries ${ids.slice(0, 2).join(", ")}`);
      },
    },
    {
      name: "tree-flat",
      title: "The flat tree has every entry with its parent and the number of its children, and the leaf.",
      source: "get_tree",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const [first] = await makeTurns(conversation, "One", "Two");
        void (await conversation.ask("branch", { entryId: first })).result;
        const [last] = await append(conversation, makeAssistant("Another answer"));
        const { entries } = await getEntries(conversation);
        const reply = await conversation.ask("get_tree", { format: "flat" });
        const nodes = reply.list("nodes");
        reply.must(isEqual(getIds(nodes), getIds(entries)), "a node for each entry, in file order");
        const parents = entries.map(({ parentId = null }) => parentId);
        reply.must(
          isEqual(
            nodes.map(({ parentId }) => parentId),
            parents,
          ),
          "the parents of the entries",
        );
        const counts = entries.map(({ id }) => parents.filter((parent) => parent === id).length);
        reply.must(
          isEqual(
            nodes.map(({ childCount }) => childCount),
            counts,
          ),
          "the numbers of their children",
        );
        reply.must(reply.result.leafId === last, `the leaf ${last}`);
      },
    },
    {
      name: "messages-of-path",
      title: "get_messages returns what the model sees at the leaf, oldest first, without state of extensions.",
      source: "get_messages",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const [, second] = await makeTurns(conversation, "One", "Two");
        void (await conversation.ask("branch", { entryId: second })).result;
        await append(conversation, makeCustom({ hidden: true }), makeUser("Three"));
        const reply = await conversation.ask("get_messages");
        const roles = reply.list("messages").map(({ role }) => role);
        reply.must(isEqual(roles, ["user", "assistant", "user"]), "the roles user, assistant, user");
        reply.must(!reply.received.text.includes("Two"), "nothing of the branch that was left");
      },
    },
    {
      name: "context-compacted",
      title: "After a compaction, what the model sees begins with its summary and the first kept entry.",
      source: "compact_append",
      needs: ["compact_append", "get_context"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two", "Three");
        const params = { summary: "One and two.", firstKeptEntryId: ids[4], tokensBefore: 100 };
        void (await conversation.ask("compact_append", params)).result;
        const reply = await conversation.ask("get_messages");
        const messages = reply.list("messages");
        const [summary] = messages;
        const isSummary = summary?.role === "compactionSummary" && summary.summary === "One and two.";
        reply.must(isSummary && summary.tokensBefore === 100, "the summary first, as a compactionSummary");
        reply.must(messages.length === 3 && messages[1].content === "Three", "then the kept messages, and no others");
        const whole = await conversation.ask("get_context", { leafId: ids[5] });
        whole.must(whole.list("messages").length === 6, "six messages at the leaf before the compaction");
        whole.must(isEqual(whole.list("entryIds"), ids), "the ids of the entries that they come from");
      },
    },
    {
      name: "context-edited",
      title: "edit_context changes what the model sees of an entry, and not the entry.",
      source: "edit_context",
      needs: ["edit_context"],
      async run(context) {
        const conversation = await context.plain();
        const [first, second] = await makeTurns(conversation, "A long listing");
        const edit = { targetId: first, replacement: { content: "(left out)" } };
        void (await conversation.ask("edit_context", edit)).result;
        const edited = await conversation.ask("get_messages");
        edited.must(edited.list("messages")[0]?.content === "(left out)", "the new content");
        const entry = await conversation.ask("get_entry", { entryId: first });
        entry.must(entry.result.entry?.message?.content === "A long listing", "the entry as it was");
        void (await conversation.ask("edit_context", { targetId: second, replacement: null })).result;
        const without = await conversation.ask("get_messages");
        without.must(without.list("messages").length === 1, "one message, without the one that was left out");
      },
    },
    {
      name: "fork-messages",
      title: "get_fork_messages returns the user messages in file order, of all branches or of the path.",
      source: "get_fork_messages",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        void (await conversation.ask("branch", { entryId: ids[1] })).result;
        const [last] = await append(conversation, makeUser("Three"));
        const describe = (list: WireValue[]): string =>
          list.map(({ entryId, text }) => `${entryId} ${text}`).join(", ");
        const all = await conversation.ask("get_fork_messages");
        const expected = `${ids[0]} One, ${ids[2]} Two, ${last} Three`;
        all.must(describe(all.list("messages")) === expected, expected);
        const path = await conversation.ask("get_fork_messages", { scope: "path" });
        path.must(describe(path.list("messages")) === `${ids[0]} One, ${last} Three`, `${ids[0]} One, ${last} Three`);
      },
    },
    {
      name: "last-assistant-text",
      title: "get_last_assistant_text returns the text of the last assistant message on the path, or null.",
      source: "get_last_assistant_text",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const none = await conversation.ask("get_last_assistant_text");
        none.must((none.result?.text ?? null) === null, "null in an empty session");
        const [, second] = await append(
          conversation,
          makeUser("One"),
          makeAssistant("First"),
          makeUser("Two"),
          makeAssistant("Last"),
        );
        const last = await conversation.ask("get_last_assistant_text");
        last.must(last.string("text") === "Last", "the text of the last answer");
        void (await conversation.ask("branch", { entryId: second })).result;
        const before = await conversation.ask("get_last_assistant_text");
        before.must(before.string("text") === "First", "the text of the last answer of the path");
      },
    },
    {
      name: "stats-count",
      title: "get_session_stats counts messages and tokens over all branches.",
      source: "get_session_stats",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const [, second] = await makeTurns(conversation, "One", "Two");
        void (await conversation.ask("branch", { entryId: second })).result;
        await append(conversation, makeUser("Three"));
        const reply = await conversation.ask("get_session_stats");
        const { userMessages, assistantMessages, tokens } = reply.result;
        reply.must(userMessages === 3 && assistantMessages === 2, "3 messages of the user and 2 of the model");
        reply.must(tokens?.input === 20 && tokens.output === 10, "20 tokens of input and 10 of output");
      },
    },
    {
      name: "compaction-prepared",
      title: "prepare_compaction returns a first kept entry that compact_append accepts, and changes nothing.",
      source: "prepare_compaction",
      needs: ["prepare_compaction", "compact_append"],
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One", "Two", "Three");
        const before = (await getEntries(conversation)).reply.textAt("entries");
        const prepared = await conversation.ask("prepare_compaction", { keepRecentTokens: 1 });
        const firstKeptEntryId = prepared.string("firstKeptEntryId");
        prepared.must((await getEntries(conversation)).reply.textAt("entries") === before, "no change");
        const { tokensBefore } = prepared.result;
        const params = { summary: "So far.", firstKeptEntryId, tokensBefore };
        void (await conversation.ask("compact_append", params)).result;
      },
    },
    {
      name: "branch-prepared",
      title: "prepare_branch_summary returns what a move of the leaf leaves, and changes nothing.",
      source: "prepare_branch_summary",
      needs: ["prepare_branch_summary"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        const reply = await conversation.ask("prepare_branch_summary", { targetId: ids[1] });
        const left = getIds(reply.list("entriesToSummarize"));
        reply.must(isEqual(left, ids.slice(2)), `the entries ${ids.slice(2).join(", ")}`);
        reply.must(reply.result.commonAncestorId === ids[1], `the common ancestor ${ids[1]}`);
        const { leafId } = await getEntries(conversation);
        reply.must(leafId === ids[3], "the leaf where it was");
      },
    },
  ],
};
