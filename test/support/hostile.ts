/** Sessions whose members hold values that no reader expects: they may be anything that JSON can say. */

import type { Random } from "./random.ts";
import type { Json } from "./server.ts";

/** A value as JSON text, for some of these cannot be said by JSON.stringify. */
const HOSTILE = [
  '{"toString":null,"valueOf":null}',
  '{"toString":1,"valueOf":"x","toJSON":null,"then":null}',
  '{"__proto__":{"type":"text"},"constructor":null,"hasOwnProperty":1}',
  '{"length":-1,"0":"a"}',
  '{"type":{"toString":null,"valueOf":null},"text":{"toString":null,"valueOf":null}}',
  '{"total":{"toString":null,"valueOf":null},"input":"1","cost":[]}',
  '{"role":{"toString":null,"valueOf":null},"content":[null,[],{"type":"text"},{"type":"toolCall","id":{},"name":[null]}]}',
  "null",
  "true",
  "0",
  "-1",
  "1e999",
  "5e-324",
  "8640000000000001",
  "[]",
  "[null]",
  '[{"toString":null,"valueOf":null}]',
  '[[],"x",{"type":"image","data":{},"mimeType":{"toString":null,"valueOf":null}}]',
  '[{"type":"toolCall","id":{"toString":null,"valueOf":null},"name":{"toString":null,"valueOf":null},"arguments":{"__proto__":null}}]',
  '[{"type":"toolCall","id":"__proto__","name":"constructor","arguments":[{"path":{"toString":null,"valueOf":null}}]}]',
  '[{"type":"text","text":{"toString":null,"valueOf":null}},{"type":"thinking","thinking":[]}]',
  '[{"type":"image","data":{"$piBlob":{"toString":null,"valueOf":null},"sizeBytes":"1"}}]',
  '""',
  '" "',
  '"__proto__"',
  '"constructor"',
  '"toString"',
  '"\\u0000\\u001b[31m"',
  '"\\ud800"',
  '"\\u2028"',
  '"+275760-09-13T00:00:00.001Z"',
  '"2026-13-45"',
  `${"[".repeat(20_000)}${"]".repeat(20_000)}`,
  `${'{"a":'.repeat(3000)}1${"}".repeat(3000)}`,
] as const;

/** Entries as writers make them, one of each type and role; ids are given later. */
const USUAL: readonly Json[] = [
  { type: "message", message: { role: "user", content: "[GAS TOWN] crew/x begins", timestamp: 1 } },
  {
    type: "message",
    message: {
      role: "assistant",
      content: [
        { type: "text", text: "Said." },
        { type: "thinking", thinking: "Thought." },
        { type: "toolCall", id: "call", name: "read", arguments: { path: "a.txt" } },
      ],
      api: "a",
      provider: "p",
      model: "m",
      usage: { input: 1, output: 2, cacheRead: 3, cacheWrite: 4, totalTokens: 10, cost: { input: 1, total: 0.5 } },
      stopReason: "toolUse",
      timestamp: 2,
    },
  },
  {
    type: "message",
    message: {
      role: "toolResult",
      toolCallId: "call",
      toolName: "read",
      content: [{ type: "text", text: "Content." }],
      isError: false,
      details: {},
      usage: { input: 1 },
      timestamp: 3,
    },
  },
  { type: "message", message: { role: "bashExecution", command: "ls", output: "a", exitCode: 0, timestamp: 4 } },
  { type: "message", message: { role: "custom", customType: "c", content: "x", display: true, details: {} } },
  { type: "message", message: { role: "system", content: "Be kind.", timestamp: 5 } },
  { type: "message", message: { role: "branchSummary", summary: "s", fromId: "a" } },
  { type: "message", message: { role: "compactionSummary", summary: "s", tokensBefore: 1 } },
  { type: "model_change", provider: "p", modelId: "m" },
  { type: "thinking_level_change", thinkingLevel: "high" },
  {
    type: "compaction",
    summary: "Before.",
    firstKeptEntryId: "00000002",
    tokensBefore: 9,
    details: { readFiles: ["a"], modifiedFiles: ["b"] },
    systemMessage: { role: "system", content: "Be kind." },
    usage: { input: 1 },
    fromHook: false,
  },
  { type: "branch_summary", fromId: "00000001", summary: "There.", details: { readFiles: ["a"] }, usage: { input: 1 } },
  { type: "custom", customType: "c", data: {} },
  { type: "custom_message", customType: "c", content: [{ type: "text", text: "n" }], display: true, details: {} },
  { type: "label", targetId: "00000001", label: "here" },
  { type: "session_info", name: "A name" },
  { type: "usage", kind: "k", provider: "p", model: "m", usage: { input: 1, cost: { total: 1 } }, note: "n" },
  { type: "context_edit", targetId: "00000001", replacement: { content: "Other." } },
  { type: "of_the_future", data: 1 },
  { type: "__proto__", data: 1 },
  { type: "constructor", data: 1 },
  { type: "toString" },
  { type: "message", message: { role: "__proto__", content: [{ type: "__proto__" }, { type: "constructor" }] } },
  { type: "message", message: { role: "constructor", content: "x" } },
];

const HEADER: Json = {
  type: "session",
  version: 3,
  id: "",
  timestamp: "2026-01-24T16:22:26.831Z",
  cwd: "/home/me/app",
  parentSession: "/home/me/app/parent.jsonl",
  branchedFrom: "/home/me/app/parent.jsonl",
  provider: "p",
  modelId: "m",
  thinkingLevel: "low",
  leafId: "00000001",
  idempotencyKey: "key",
  name: "n",
};

/** What a hostile value stands for until it is text: JSON.stringify would not write it as it is. */
const MARK = "hostile value ";

/** The value with some of what is in it replaced. */
function spoilt(random: Random, value: Json, chance: number): Json {
  if (random.chance(chance)) return `${MARK}${random.int(HOSTILE.length)}`;
  if (Array.isArray(value)) return value.map((item) => spoilt(random, item, chance));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, spoilt(random, member, chance)]));
}

function textOf(value: Json): string {
  return JSON.stringify(value).replace(new RegExp(`"${MARK}(\\d+)"`, "g"), (_all, n) => HOSTILE[Number(n)]);
}

/** The header and the entries of a session, as JSON texts; ids, parents and types stay as they should be. */
export function hostileSession(random: Random, id: string, cwd: string): { header: string; entries: string[] } {
  const chance = random.pick([0.02, 0.1, 0.3]);
  const { type, version, ...rest } = HEADER;
  const members = spoilt(random, { ...rest, cwd }, chance);
  // Without members of its own that may be hostile, a file is no session, or of a version that nobody knows.
  const own = typeof members === "object" ? members : {};
  const header = textOf({ type, version, ...own, id });
  const entries: string[] = [];
  for (let n = 0; n < 30; n++) {
    const { type: entryType, ...body } = n < USUAL.length ? USUAL[n] : random.pick(USUAL);
    const spoiltBody = spoilt(random, body, chance);
    const entryId = n.toString(16).padStart(8, "0");
    const parent = n === 0 ? null : (random.chance(0.8) ? n - 1 : random.int(n)).toString(16).padStart(8, "0");
    const timestamp = spoilt(random, "2026-01-24T16:22:26.831Z", chance);
    const head = { type: entryType, id: entryId, parentId: parent, timestamp };
    entries.push(textOf({ ...head, ...(typeof spoiltBody === "object" ? spoiltBody : {}) }));
  }
  return { header, entries };
}
