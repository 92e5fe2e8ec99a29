/** Rules about writing, and reading it back. */

import type { Conversation } from "../conversation.ts";
import { isRecord, type WireValue } from "../dialect.ts";
import type { Reply } from "../reply.ts";
import { defineTheme, fails, type RowStep, type RuleRow, withIds } from "../row.ts";
import { getEntries, isEqual, makeAssistant, makeCustom, makeUser, mustHaveEntries } from "../steps.ts";

/** Appends an entry by its text, and returns the reply that has it back. */
async function stored(conversation: Conversation, entryText: string): Promise<Reply> {
  const appended = await conversation.ask("append", `{"entries":[${entryText}]}`);
  const [entryId] = appended.list("entryIds");
  return conversation.ask("get_entry", { entryId });
}

/** Returns the rule that the text of an entry's member comes back byte for byte. */
function verbatim(name: string, title: string, data: string): RuleRow {
  return {
    name,
    title,
    source: "Writing safely",
    given: [],
    async check(conversation) {
      const text = `{"type":"custom","customType":"conformance","data":${data},"extra":${data}}`;
      const reply = await stored(conversation, text);
      for (const member of ["data", "extra"])
        reply.must(reply.textAt("entry", member) === data, `the member ${member} as ${data}`);
    },
  };
}

/** Entries that name one that does not exist. */
const LOST_LABEL = { type: "label", targetId: "nowhere", label: "lost" };
const LOST_REFERENCES: readonly WireValue[] = [
  LOST_LABEL,
  { type: "context_edit", targetId: "nowhere", replacement: null },
  { type: "compaction", summary: "So far.", firstKeptEntryId: "nowhere", tokensBefore: 10 },
];

const KEYED = { entries: [makeUser("Once"), makeCustom(1)], idempotencyKey: "key-1" };

/** The session has one turn and no more. */
const ONE_TURN: RowStep = ["get_entries", {}, { entries: withIds("<entry-1>", "<entry-2>") }];

export const writingTheme = defineTheme("writing", [
  {
    name: "append-result",
    title: "append returns the id of each entry, in order, and the new leaf.",
    source: "append",
    given: [],
    async check(conversation) {
      const reply = await conversation.ask("append", { entries: [makeUser("One"), makeAssistant("1"), makeCustom(2)] });
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
    given: ["One"],
    steps: [
      ["branch", { entryId: "<entry-1>" }],
      ["append", { entries: [makeAssistant("Another"), makeUser("Two")] }, { entryIds: ["<third>", "<fourth>"] }],
      ["get_entry", { entryId: "<third>" }, { entry: { parentId: "<entry-1>" } }],
      ["get_entry", { entryId: "<fourth>" }, { entry: { parentId: "<third>" } }],
    ],
  },
  {
    name: "entry-members",
    title: "Entries that the server writes have type, first of all, and id, parentId and timestamp.",
    source: "Session format",
    given: ["One"],
    async check(conversation) {
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
    given: [],
    async check(conversation) {
      const sky = '{"colour":"blue","clouds":[]}';
      const reply = await stored(conversation, `{"type":"weather","sky":${sky},"wind":null}`);
      const { entry } = reply.result;
      reply.must(entry?.type === "weather" && entry.wind === null, "the type weather, and wind null");
      reply.must(reply.textAt("entry", "sky") === sky, "the member sky as it was sent");
    },
  },
  {
    name: "own-ids",
    title: "A host may choose the ids of its entries.",
    source: "Ids",
    given: [],
    steps: [
      ["append", { entries: [{ ...makeUser("One"), id: "chosen_1-a" }] }, { entryIds: ["chosen_1-a"] }],
      ["get_entries", {}, { entries: withIds("chosen_1-a") }],
    ],
  },
  {
    name: "message-completed",
    title: "An assistant message gets the members that Pi relies on and that it lacks, at its end.",
    source: "Writing safely",
    given: [],
    async check(conversation) {
      const reply = await stored(conversation, '{"type":"message","message":{"mood":"good","role":"assistant"}}');
      const message = reply.result.entry?.message ?? {};
      const { usage, stopReason, timestamp, provider, model, api, content } = message;
      const [first, second] = Object.keys(message);
      reply.must(first === "mood" && second === "role", "the members that were sent, first");
      reply.must(isRecord(usage) && usage.input === 0 && isRecord(usage.cost), "usage with zeros and its cost");
      reply.must(typeof stopReason === "string" && typeof timestamp === "number", "stopReason and timestamp");
      const areTexts = [provider, model, api].every((text) => typeof text === "string");
      reply.must(areTexts, "provider, model and api");
      reply.must(content !== undefined, "content");
    },
  },
  {
    name: "text-to-block",
    title: "If an assistant message has text instead of blocks, the text becomes one block.",
    source: "Writing safely",
    given: [],
    async check(conversation) {
      const text = '{"type":"message","message":{"role":"assistant","content":"Blue."}}';
      const reply = await stored(conversation, text);
      const content = reply.result.entry?.message?.content;
      reply.must(isEqual(content, [{ type: "text", text: "Blue." }]), "one block of text");
    },
  },
  {
    name: "all-or-none",
    title: "append stores all entries of a list or none.",
    source: "Writing safely",
    given: ["One"],
    async check(conversation, ids) {
      const reply = await conversation.ask("append", { entries: [makeUser("Two"), LOST_LABEL, makeUser("Three")] });
      reply.must(reply.isFailure, "a failure, because the label names an entry that does not exist");
      await mustHaveEntries(conversation, ids);
    },
  },
  {
    name: "references-checked",
    title: "A label, a context edit or a compaction that names an entry that does not exist is refused.",
    source: "Writing safely",
    given: ["One"],
    steps: LOST_REFERENCES.map(
      (entry): RowStep => ["append", { entries: [entry] }, fails("entry_not_found", "invalid_boundary")],
    ),
  },
  {
    name: "mistakes-reported",
    title: "What is stored but may be a mistake is reported in warnings.",
    source: "Writing safely",
    given: [],
    async check(conversation) {
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
    given: ["One"],
    steps: [
      ["append", { entries: [makeCustom(1)], expectedLeafId: "<entry-1>" }, fails("content_modified")],
      ONE_TURN,
      ["append", { entries: [makeCustom(2)], expectedLeafId: "<entry-2>" }],
    ],
  },
  {
    name: "idempotency-key",
    title: "A command that is repeated with its idempotencyKey returns the first result and writes nothing.",
    source: "Writing safely",
    given: ["One"],
    steps: [
      ["append", KEYED, { entryIds: ["<third>", "<fourth>"] }],
      ["append", { entries: [makeUser("Later")] }, { entryIds: ["<fifth>"] }],
      ["append", KEYED, { entryIds: ["<third>", "<fourth>"] }],
      ["get_entries", {}, { entries: withIds("<entry-1>", "<entry-2>", "<third>", "<fourth>", "<fifth>") }],
    ],
  },
  {
    name: "branch-moves",
    title: "branch moves the leaf inside the session and removes nothing.",
    source: "branch",
    given: ["One", "Two"],
    steps: [
      ["branch", { entryId: "<entry-2>" }, { leafId: "<entry-2>", cancelled: false }],
      ["branch", { entryId: "<entry-3>", position: "before" }, { text: "Two", leafId: "<entry-2>" }],
      ["branch", { entryId: null }, { leafId: null }],
      ["branch", { entryId: "nowhere" }, fails("entry_not_found")],
    ],
    async check(conversation, ids) {
      const { entries, reply } = await getEntries(conversation);
      const all = entries.map(({ id }) => id);
      reply.must(
        ids.every((id) => all.includes(id)),
        "all entries",
      );
    },
  },
  {
    name: "fork-before",
    title: "A fork before a user message has the path up to it, and returns its text.",
    source: "fork",
    given: ["One", "Two"],
    steps: [["fork", { entryId: "<entry-3>" }, { text: "Two" }], ONE_TURN],
  },
  {
    name: "fork-at",
    title: "A fork at an entry ends with it, whatever it is; before one that is no user message it is refused.",
    source: "fork",
    given: ["One", "Two"],
    steps: [
      ["fork", { entryId: "<entry-2>" }, fails("not_a_user_message")],
      ["fork", { entryId: "<entry-2>", position: "at" }, { text: "" }],
      ONE_TURN,
    ],
  },
  {
    name: "labels",
    title: "set_label sets the label of an entry; without a label it clears it.",
    source: "set_label",
    given: ["One"],
    async check(conversation, [entryId]) {
      for (const label of ["here", undefined]) {
        await conversation.run("set_label", { entryId, label });
        const reply = await conversation.ask("get_entry", { entryId });
        reply.must((reply.result.label ?? undefined) === label, `the label ${label ?? null}`);
      }
    },
  },
  {
    name: "boundary-checked",
    title: "A compaction that keeps from an entry which is not on the path is refused with invalid_boundary.",
    source: "compact_append",
    given: ["One", "Two"],
    steps: [
      ["branch", { entryId: "<entry-2>" }],
      ["append", { entries: [makeUser("Three")] }],
      [
        "compact_append",
        { summary: "So far.", firstKeptEntryId: "<entry-3>", tokensBefore: 10 },
        fails("invalid_boundary"),
      ],
    ],
  },
]);
