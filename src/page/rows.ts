/** Entries as the page's script knows them: their place in the tree, and the facts needed without reading their blocks. */

import { type PageEntry, toAnchorName } from "../core/export/page.ts";
import { type LooseMembers, toMembers } from "../core/format/loose.ts";
import {
  findMainArgument,
  getContentText,
  getToolCalls,
  toAmount,
  toPreview,
  toShownText,
  toStored,
} from "../core/format/message.ts";
import { getEntryUsage } from "../core/session/stats.ts";
import { toReadable } from "./escape.ts";
import type { RowKind, RowMore, RowTuple } from "./row.ts";

/** Characters of a text, of the argument of a call and of a name. */
const TEXT = 90;
const OUTPUT = 50;
const ARGUMENT = 60;
const NAME = 60;
/** Calls of one message. */
const MOST_CALLS = 50;

const KINDS: Readonly<Record<string, RowKind>> = {
  custom_message: "x",
  compaction: "c",
  branch_summary: "s",
  label: "l",
  session_info: "n",
  model_change: "m",
  thinking_level_change: "t",
};

const ROLES: Readonly<Record<string, RowKind>> = { user: "u", assistant: "a", toolResult: "r", bashExecution: "b" };

function shown(text: string, most: number): string {
  return toReadable(toPreview(text, most));
}

/** Returns prose without the signs that its headings and stresses have. */
function unmarked(text: string): string {
  return text.slice(0, 1000).replace(/^#{1,6} +|\*\*|^```\w*$|`/gm, "");
}

export function toRow({ number, above, anchor, body, label }: PageEntry): RowTuple {
  const message = body.type === "message" ? toMembers(body.message) : {};
  const { role } = message;
  const type = toStored(body.type);
  const kind = type === "message" ? (own(ROLES, toStored(role)) ?? "x") : (own(KINDS, type) ?? "o");
  const time = Date.parse(toStored(body.timestamp));
  const more: RowMore = { ...(label === undefined ? {} : { l: shown(label, NAME) }), ...moreOf(body, message, kind) };
  const row = [
    anchor,
    above === undefined ? -1 : number,
    above === undefined ? (toAnchorName(toStored(body.parentId)) ?? "") : above < 0 ? 0 : number - above,
    kind,
    shown(textOf(body, message, kind), kind === "r" ? OUTPUT : TEXT),
    Number.isNaN(time) ? 0 : Math.round(time / 1000),
  ] as const;
  return Object.keys(more).length === 0 ? row : [...row, more];
}

function own<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

function textOf(body: LooseMembers, message: LooseMembers, kind: RowKind): string {
  switch (kind) {
    case "u":
      return unmarked(getContentText(message.content));
    case "r":
      return getContentText(message.content);
    case "a":
      return unmarked(getContentText(message.content)) || toStored(message.errorMessage);
    case "b":
      return toShownText(message.command);
    case "x":
      return getContentText(message.content) || getContentText(body.content) || toShownText(body.customType);
    case "c":
    case "s":
      return unmarked(toShownText(body.summary));
    case "l":
      return toShownText(body.label);
    case "n":
      return toShownText(body.name);
    case "m":
      return [toShownText(body.provider), toShownText(body.modelId)].filter(Boolean).join("/");
    case "t":
      return toShownText(body.thinkingLevel);
    default:
      return [toShownText(body.type), toShownText(body.customType)].filter(Boolean).join(": ");
  }
}

function moreOf(body: LooseMembers, message: LooseMembers, kind: RowKind): RowMore {
  const calls = kind === "a" ? getToolCalls(message.content).slice(0, MOST_CALLS) : [];
  const failed = message.isError === true || message.stopReason === "error" || isNonZero(message.exitCode);
  const usage = usageOf(getEntryUsage(body));
  const named = calls.map(
    ({ name, arguments: args }) => [shown(name, NAME), shown(findMainArgument(args), ARGUMENT)] as const,
  );
  return {
    ...(failed ? { f: 1 as const } : {}),
    ...(named.length > 0 ? { c: named } : {}),
    ...(usage.some((amount) => amount > 0) ? { u: usage } : {}),
    ...(kind === "r" && message.toolName ? { n: shown(toStored(message.toolName), NAME) } : {}),
  };
}

function isNonZero(code: unknown): boolean {
  return typeof code === "number" && code !== 0;
}

/** Returns all tokens, and the cost. */
function usageOf(usage: unknown): number[] {
  const given = toMembers(usage);
  const parts = [given.input, given.output, given.cacheRead, given.cacheWrite].map(toAmount);
  const sum = parts.reduce((total, part) => total + part, 0);
  const cost = toAmount(toMembers(given.cost).total);
  return [sum || toAmount(given.totalTokens), Math.round(cost * 1e7) / 1e7];
}

/** Returns rows as an element that the script reads and nothing else does. */
export function renderRows(rows: readonly RowTuple[]): string {
  // Nothing ends the element, or begins a comment in it.
  const json = JSON.stringify(rows).replace(/</g, "\\u003c");
  return `<script type="application/json" class="rows">${json}</script>`;
}
