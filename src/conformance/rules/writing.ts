/** Rules about writing, and reading it back. */

import { isRecord } from "../dialect.ts";
import type { Reply } from "../reply.ts";
import type { Rule, RuleContext, Theme } from "../rule.ts";
import { append, getEntries, isEqual, makeAssistant, makeCustom, makeSession, makeTurns, makeUser } from "../steps.ts";

/** Appends an entry by its text, and returns the reply that has it back. */
async function stored(context: RuleContext, entryText: string): Promise<Reply> {
  const conversation = await context.plain();
  await makeSession(conversation);
  const appended = await conversation.ask("append", `{"entries":[${entryText}]}`);
  const [entryId] = appended.list("entryIds");
  return conversation.ask("get_entry", { entryId });
}

/** Returns the rule that the text of an entry's member comes back byte for byte. */
function verbatim(name: string, title: string, data: string): Rule {
  return {
    name,
    title,
    source: "Writing safely",
    async run(context) {
      const reply = await stored(
        context,
        `{"type":"custom","customType":"conformance","data":${data},"extra":${data}}`,
      );
      for (const member of ["data", "extra"]) {
        const came = reply.textAt("entry", member);
        reply.must(came === data, `the member ${member} as ${data}`);
      }
    },
  };
}

export const writingTheme: Theme = {
  name: "writing",
  rules: [
    {
      name: "append-result",
      title: "append returns the id of each entry, in order, and the new leaf.",
      source: "append",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const reply = await conversation.ask("append", {
          entries: [makeUser("One"), makeAssistant("1"), makeCustom(2)],
        });
        const ids = reply.list("entryIds");
        reply.must(ids.length === 3 && new Set(ids).size === 3, "three different ids");
        reply.must(reply.result.leafId === ids[2], "the last of them as leafId");
        const { leafId } = await getEntries(conversation);
        reply.must(leafId === ids[2], "that it is the leaf");
      },
    },
    {
      name: "append-chain",
      title: "Each appended entry continues the one before it, the first the leaf.",
      source: "append",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const [first] = await makeTurns(conversation, "One");
        void (await conversation.ask("branch", { entryId: first })).result;
        const [third, fourth] = await append(conversation, makeAssistant("Another"), makeUser("Two"));
        const { entries, reply } = await getEntries(conversation);
        const parentOf = (id: string): unknown => entries.find((entry) => entry.id === id)?.parentId;
        reply.must(parentOf(third) === first, `that ${third} continues ${first}`);
        reply.must(parentOf(fourth) === third, `that ${fourth} continues ${third}`);
      },
    },
    {
      name: "entry-members",
      title: "Entries that the server writes have type, first of all, and id, parentId and timestamp.",
      source: "Session format",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const { entries, reply } = await getEntries(conversation);
        reply.must(entries.length === 2, "two entries");
        for (const entry of entries) {
          reply.must(Object.keys(entry)[0] === "type", "the member type first");
          reply.must(typeof entry.id === "string" && "parentId" in entry, "the members id and parentId");
          const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/.test(entry.timestamp);
          reply.must(isTime, "a timestamp in ISO 8601 and UTC");
        }
      },
    },
    verbatim(
      "numbers-as-sent",
      "Numbers are stored in the digits in which they were sent.",
      "[1.0,1e3,-0,12345678901234567890,0.1000,1E+2,3.14159265358979323846]",
    ),
    verbatim(
      "strings-as-sent",
      "Strings are stored with the escapes with which they were sent.",
      '["\\u00e9","é","\\/","/","\\u0041","\\ud83d\\udc4b","\\t"]',
    ),
    verbatim(
      "members-as-sent",
      "Members are stored in the order in which they were sent, with the spaces between them.",
      '{"z":1,"a":2, "10":3,"9": 4,"":5,"__proto__":6}',
    ),
    {
      name: "unknown-kept",
      title: "Types and members that are not listed are kept as they are.",
      source: "Session format",
      async run(context) {
        const reply = await stored(context, '{"type":"weather","sky":{"colour":"blue","clouds":[]},"wind":null}');
        const { entry } = reply.result;
        reply.must(entry?.type === "weather" && entry.wind === null, "the type weather, and wind null");
        reply.must(reply.textAt("entry", "sky") === '{"colour":"blue","clouds":[]}', "the member sky as it was sent");
      },
    },
    {
      name: "own-ids",
      title: "A host may choose the ids of its entries.",
      source: "Ids",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const [id] = await append(conversation, { ...makeUser("One"), id: "chosen_1-a" });
        const { entries, reply } = await getEntries(conversation);
        reply.must(id === "chosen_1-a" && entries[0]?.id === id, "the id chosen_1-a");
      },
    },
    {
      name: "message-completed",
      title: "An assistant message gets the members that Pi relies on and that it lacks, at its end.",
      source: "Writing safely",
      async run(context) {
        const reply = await stored(context, '{"type":"message","message":{"mood":"good","role":"assistant"}}');
        const message = reply.result.entry?.message;
        const { usage, stopReason, timestamp, provider, model, api, content } = message ?? {};
        reply.must(
          Object.keys(message ?? {})
            .slice(0, 2)
            .join() === "mood,role",
          "the members that were sent, first",
        );
        reply.must(isRecord(usage) && usage.input === 0 && isRecord(usage.cost), "usage with zeros and its cost");
        reply.must(typeof stopReason === "string" && typeof timestamp === "number", "stopReason and timestamp");
        reply.must(
          [provider, model, api].every((text) => typeof text === "string"),
          "provider, model and api",
        );
        reply.must(content !== undefined, "content");
      },
    },
    {
      name: "text-to-block",
      title: "If an assistant message has text instead of blocks, the text becomes one block.",
      source: "Writing safely",
      async run(context) {
        const reply = await stored(context, '{"type":"message","message":{"role":"assistant","content":"Blue."}}');
        const content = reply.result.entry?.message?.content;
        reply.must(isEqual(content, [{ type: "text", text: "Blue." }]), "one block of text");
      },
    },
    {
      name: "all-or-none",
      title: "append stores all entries of a list or none.",
      source: "Writing safely",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const label = { type: "label", targetId: "nowhere", label: "lost" };
        const reply = await conversation.ask("append", {
          entries: [makeUser("Two"), label, makeUser("Three")],
        });
        reply.must(reply.isFailure, "a failure, because the label names an entry that does not exist");
        const { entries, reply: read } = await getEntries(conversation);
        read.must(entries.length === 2, "the two entries from before");
      },
    },
    {
      name: "references-checked",
      title: "A label, a context edit or a compaction that names an entry that does not exist is refused.",
      source: "Writing safely",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const entries = [
          { type: "label", targetId: "nowhere", label: "lost" },
          { type: "context_edit", targetId: "nowhere", replacement: null },
          { type: "compaction", summary: "So far.", firstKeptEntryId: "nowhere", tokensBefore: 10 },
        ];
        for (const entry of entries)
          (await conversation.ask("append", { entries: [entry] })).mustFail("entry_not_found", "invalid_boundary");
      },
    },
    {
      name: "mistakes-reported",
      title: "What is stored but may be a mistake is reported in warnings.",
      source: "Writing safely",
      async run(context) {
        const conversation = await context.plain();
        await makeSession(conversation);
        const odd = { type: "message", message: { role: "wizard", content: "Abracadabra" } };
        const reply = await conversation.ask("append", { entries: [makeUser("One"), odd] });
        const [warning] = reply.list("warnings");
        const isReported = typeof warning?.message === "string" && warning.path?.startsWith("entries.1.");
        reply.must(isReported, "a warning with a path below entries.1");
        const good = await conversation.ask("append", { entries: [makeUser("Two")] });
        good.must(!("warnings" in good.result), "no warnings where there is nothing to report");
      },
    },
    {
      name: "expected-leaf",
      title: "With an expectedLeafId that is not the leaf, a write fails with content_modified and writes nothing.",
      source: "Writing safely",
      async run(context) {
        const conversation = await context.plain();
        const [first, second] = await makeTurns(conversation, "One");
        const write = (leaf: string): Promise<Reply> =>
          conversation.ask("append", { entries: [makeCustom(leaf)], expectedLeafId: leaf });
        (await write(first)).mustFail("content_modified");
        const { entries, reply } = await getEntries(conversation);
        reply.must(entries.length === 2, "the two entries from before");
        void (await write(second)).result;
      },
    },
    {
      name: "idempotency-key",
      title: "A command that is repeated with its idempotencyKey returns the first result and writes nothing.",
      source: "Writing safely",
      async run(context) {
        const conversation = await context.plain();
        await makeTurns(conversation, "One");
        const params = { entries: [makeUser("Once"), makeCustom(1)], idempotencyKey: "key-1" };
        const first = await conversation.ask("append", params);
        const ids = first.list("entryIds");
        await append(conversation, makeUser("Later"));
        const again = await conversation.ask("append", params);
        again.must(isEqual(again.list("entryIds"), ids), `the entryIds ${ids.join(", ")}`);
        const { entries, reply } = await getEntries(conversation);
        reply.must(entries.length === 5, "five entries, those with the key once");
      },
    },
    {
      name: "branch-moves",
      title: "branch moves the leaf inside the session and removes nothing.",
      source: "branch",
      needs: ["branch"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        const reply = await conversation.ask("branch", { entryId: ids[1] });
        reply.must(reply.result.leafId === ids[1] && reply.result.cancelled === false, `the leaf ${ids[1]}`);
        const before = await conversation.ask("branch", { entryId: ids[2], position: "before" });
        before.must(before.string("text") === "Two", "the text of the message before which it moves");
        before.must(before.result.leafId === ids[1], `the leaf ${ids[1]}`);
        const root = await conversation.ask("branch", { entryId: null });
        root.must(root.result.leafId === null, "the leaf null before the first entry");
        const { entries, reply: read } = await getEntries(conversation);
        const all = entries.map(({ id }) => id);
        read.must(
          ids.every((id) => all.includes(id)),
          "all entries",
        );
        (await conversation.ask("branch", { entryId: "nowhere" })).mustFail("entry_not_found");
      },
    },
    {
      name: "fork-before",
      title: "A fork before a user message has the path up to it, and returns its text.",
      source: "fork",
      needs: ["fork"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        const reply = await conversation.ask("fork", { entryId: ids[2] });
        reply.must(reply.string("text") === "Two", "the text of the message");
        const { entries, reply: read } = await getEntries(conversation);
        read.must(entries.map(({ id }) => id).join() === `${ids[0]},${ids[1]}`, "the two entries before it");
      },
    },
    {
      name: "fork-at",
      title: "A fork at an entry ends with it, whatever it is; before one that is no user message it is refused.",
      source: "fork",
      needs: ["fork"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        (await conversation.ask("fork", { entryId: ids[1] })).mustFail("not_a_user_message");
        const reply = await conversation.ask("fork", { entryId: ids[1], position: "at" });
        reply.must(reply.string("text") === "", "an empty text");
        const { entries, reply: read } = await getEntries(conversation);
        read.must(entries.map(({ id }) => id).join() === `${ids[0]},${ids[1]}`, "the entries up to it");
      },
    },
    {
      name: "labels",
      title: "set_label sets the label of an entry; without a label it clears it.",
      source: "set_label",
      needs: ["set_label"],
      async run(context) {
        const conversation = await context.plain();
        const [first] = await makeTurns(conversation, "One");
        for (const [label, expected] of [["here", "here"] as const, [undefined, null] as const]) {
          void (await conversation.ask("set_label", { entryId: first, label })).result;
          const reply = await conversation.ask("get_entry", { entryId: first });
          reply.must((reply.result.label ?? null) === expected, `the label ${expected}`);
        }
      },
    },
    {
      name: "boundary-checked",
      title: "A compaction that keeps from an entry which is not on the path is refused with invalid_boundary.",
      source: "compact_append",
      needs: ["compact_append", "branch"],
      async run(context) {
        const conversation = await context.plain();
        const ids = await makeTurns(conversation, "One", "Two");
        void (await conversation.ask("branch", { entryId: ids[1] })).result;
        await append(conversation, makeUser("Three"));
        const params = { summary: "So far.", firstKeptEntryId: ids[2], tokensBefore: 10 };
        (await conversation.ask("compact_append", params)).mustFail("invalid_boundary");
      },
    },
  ],
};
