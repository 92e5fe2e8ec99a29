/** Sessions whose members hold values that no reader expects: they may be anything that JSON can say. */

import { assistant, toolResult, user } from "./drafts.ts";
import type { Random } from "./random.ts";
import type { Json } from "./server.ts";

const ODD = '{"toString":null,"valueOf":null}';

/** A value as JSON text, for some of these cannot be said by JSON.stringify. */
const HOSTILE = [
  ODD,
  '{"toString":1,"valueOf":"x","toJSON":null,"then":null}',
  '{"__proto__":{"type":"text"},"constructor":null,"hasOwnProperty":1}',
  '{"length":-1,"0":"a"}',
  `{"type":${ODD},"text":${ODD}}`,
  `{"total":${ODD},"input":"1","cost":[]}`,
  `{"role":${ODD},"content":[null,[],{"type":"text"},{"type":"toolCall","id":{},"name":[null]}]}`,
  ...["null", "true", "0", "-1", "1e999", "5e-324", "8640000000000001", "[]", "[null]", `[${ODD}]`],
  `[[],"x",{"type":"image","data":{},"mimeType":${ODD}}]`,
  `[{"type":"toolCall","id":${ODD},"name":${ODD},"arguments":{"__proto__":null}}]`,
  `[{"type":"toolCall","id":"__proto__","name":"constructor","arguments":[{"path":${ODD}}]}]`,
  `[{"type":"text","text":${ODD}},{"type":"thinking","thinking":[]}]`,
  `[{"type":"image","data":{"$piBlob":${ODD},"sizeBytes":"1"}}]`,
  ...['""', '" "', '"__proto__"', '"constructor"', '"toString"', '"\\u0000\\u001b[31m"', '"\\ud800"', '"\\u2028"'],
  ...['"+275760-09-13T00:00:00.001Z"', '"2026-13-45"'],
  `${"[".repeat(20_000)}${"]".repeat(20_000)}`,
  `${'{"a":'.repeat(3000)}1${"}".repeat(3000)}`,
] as const;

const message = (role: string, rest: object): Json => ({ type: "message", message: { role, ...rest, timestamp: 1 } });
const said = assistant("Said.");
said.message.content.push(
  { type: "thinking", thinking: "Thought." },
  { type: "toolCall", id: "call", name: "read", arguments: { path: "a.txt" } },
);
const answered = toolResult("call", "Content.");
Object.assign(answered.message, { details: {}, usage: { input: 1 }, timestamp: 3 });
const system = { role: "system", content: "Be kind." };
const files = { readFiles: ["a"], modifiedFiles: ["b"] };
const usage = { input: 1, cost: { total: 1 } };
const note = [{ type: "text", text: "n" }];

/** Entries as writers make them, one of each type and role; ids are given later. */
const USUAL: readonly Json[] = [
  user("[GAS TOWN] crew/x begins"),
  said,
  answered,
  message("bashExecution", { command: "ls", output: "a", exitCode: 0 }),
  message("custom", { customType: "c", content: "x", display: true, details: {} }),
  message("system", system),
  message("branchSummary", { summary: "s", fromId: "a" }),
  message("compactionSummary", { summary: "s", tokensBefore: 1 }),
  { type: "model_change", provider: "p", modelId: "m" },
  { type: "thinking_level_change", thinkingLevel: "high" },
  {
    ...{ type: "compaction", summary: "Before.", firstKeptEntryId: "00000002", tokensBefore: 9 },
    ...{ details: files, systemMessage: system, usage, fromHook: false },
  },
  { type: "branch_summary", fromId: "00000001", summary: "There.", details: files, usage },
  { type: "custom", customType: "c", data: {} },
  { type: "custom_message", customType: "c", content: note, display: true, details: {} },
  { type: "label", targetId: "00000001", label: "here" },
  { type: "session_info", name: "A name" },
  { type: "usage", kind: "k", provider: "p", model: "m", usage, note: "n" },
  { type: "context_edit", targetId: "00000001", replacement: { content: "Other." } },
  { type: "of_the_future", data: 1 },
  { type: "__proto__", data: 1 },
  { type: "constructor", data: 1 },
  { type: "toString" },
  message("__proto__", { content: [{ type: "__proto__" }, { type: "constructor" }] }),
  message("constructor", { content: "x" }),
];

const PARENT = "/home/me/app/parent.jsonl";
const HEADER: Json = {
  ...{ type: "session", version: 3, id: "", timestamp: "2026-01-24T16:22:26.831Z", cwd: "/home/me/app" },
  ...{ parentSession: PARENT, branchedFrom: PARENT, provider: "p", modelId: "m", thinkingLevel: "low" },
  ...{ leafId: "00000001", idempotencyKey: "key", name: "n" },
};

/** The sign of a hostile value until it is text: JSON.stringify would change it. */
const MARK = "hostile value ";

/** Returns the value with some of its parts replaced. */
function spoilt(random: Random, value: Json, chance: number): Json {
  if (random.chance(chance)) return `${MARK}${random.int(HOSTILE.length)}`;
  if (Array.isArray(value)) return value.map((item) => spoilt(random, item, chance));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, spoilt(random, member, chance)]));
}

const textOf = (value: Json): string =>
  JSON.stringify(value).replace(new RegExp(`"${MARK}(\\d+)"`, "g"), (_all, n) => HOSTILE[Number(n)]);

/** The header and the entries of a session, as JSON texts; ids, parents and types stay as they should be. */
export function hostileSession(random: Random, id: string, cwd: string): { header: string; entries: string[] } {
  const chance = random.pick([0.02, 0.1, 0.3]);
  const { type, version, ...rest } = HEADER;
  const members = spoilt(random, { ...rest, cwd }, chance);
  // Without members of its own that may be hostile, a file is no session, or of an unknown version.
  const own = typeof members === "object" ? members : {};
  const idOf = (n: number): string => n.toString(16).padStart(8, "0");
  const entries = Array.from({ length: 30 }, (_, n) => {
    const { type, ...body } = n < USUAL.length ? USUAL[n] : random.pick(USUAL);
    const spoiltBody = spoilt(random, body, chance);
    const parentId = n === 0 ? null : idOf(random.chance(0.8) ? n - 1 : random.int(n));
    const timestamp = spoilt(random, "2026-01-24T16:22:26.831Z", chance);
    return textOf({ type, id: idOf(n), parentId, timestamp, ...(typeof spoiltBody === "object" ? spoiltBody : {}) });
  });
  return { header: textOf({ type, version, ...own, id }), entries };
}
