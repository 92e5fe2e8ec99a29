/** Warnings about entries that are stored as sent, although the host may not have meant them that way. */

import type { BadParams } from "../failure.ts";
import { KNOWN_TYPES, ROLES } from "../tree/nodes.ts";

/** Known roles, and other names for some of them. */
const KNOWN_ROLES = new Set<string>([...ROLES.filter((role) => role !== "" && role !== "other"), "hookMessage"]);
const OTHER_NAMES: Readonly<Record<string, string>> = {
  tool: "toolResult",
  tool_result: "toolResult",
  function: "toolResult",
  human: "user",
  ai: "assistant",
  model: "assistant",
  developer: "system",
};

/** Returns what is doubtful about a well-formed draft, each with its path in the draft, such as `message.role`. */
export function doubtsOf(draft: Readonly<Record<string, unknown>>): BadParams["issues"] {
  const { type, message } = draft;
  if (type === "message") return messageDoubts(message as Readonly<Record<string, unknown>>);
  const meant = nearest(String(type), KNOWN_TYPES);
  if (meant === undefined) return [];
  return [{ path: "type", message: `Pi knows no entry type ${String(type)}; readers skip it. Did you mean ${meant}?` }];
}

function messageDoubts(message: Readonly<Record<string, unknown>>): BadParams["issues"] {
  const { content } = message;
  const role = String(message.role);
  if (!KNOWN_ROLES.has(role)) {
    const other = role.toLowerCase();
    const meant = Object.hasOwn(OTHER_NAMES, other) ? OTHER_NAMES[other] : nearest(role, [...KNOWN_ROLES]);
    const hint = meant === undefined ? "" : ` Did you mean ${meant}?`;
    return [
      { path: "message.role", message: `Pi knows no role ${role}; its model does not see such messages.${hint}` },
    ];
  }
  const doubts: { path: string; message: string }[] = [];
  const warn = (member: string, text: string): void => {
    doubts.push({ path: `message.${member}`, message: text });
  };
  if (role === "system" && (typeof message.sections !== "object" || message.sections === null))
    warn("role", "System messages have sections in Pi 1.5 and are unknown before; this one has none.");
  if (role === "user" && content === undefined)
    warn("content", "A user message without content says nothing to the model.");
  if (role === "toolResult" && (typeof message.toolCallId !== "string" || message.toolCallId === ""))
    warn("toolCallId", "A tool result without the id of its call belongs to no call: providers refuse it.");
  if ((role === "assistant" || role === "toolResult") && typeof content === "string")
    warn("content", "Pi reads a list of blocks here; the text is stored as one text block.");
  return doubts;
}

/** Returns the known name that another is likely to be a misspelling of; undefined if it is known itself. */
function nearest(name: string, names: readonly string[]): string | undefined {
  if (names.includes(name) || name.length > 40) return undefined;
  const plain = (text: string): string => text.toLowerCase().replace(/[^a-z]/g, "");
  let best: { readonly name: string; readonly distance: number } | undefined;
  for (const known of names) {
    const distance = distanceOf(plain(name), plain(known));
    // Short names are similar by chance.
    if (distance <= (known.length < 6 ? 1 : 2) && (!best || distance < best.distance)) best = { name: known, distance };
  }
  return best?.name;
}

/** Returns how many letters must be inserted, removed, changed or swapped with the next. */
function distanceOf(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let k = 1; k <= b.length; k++) {
      const changed = last[k - 1] + (a[i - 1] === b[k - 1] ? 0 : 1);
      row[k] = Math.min(changed, last[k] + 1, row[k - 1] + 1);
      if (i > 1 && k > 1 && a[i - 1] === b[k - 2] && a[i - 2] === b[k - 1])
        row[k] = Math.min(row[k], beforeLast[k - 2] + 1);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length];
}
