/**
 * Texts that Claude Code writes in a person's place. The members of their record identify them; if these do not, the
 * beginning of the text does.
 */

import { isObject } from "../../../../core/foreign/messages.ts";

interface Harness {
  readonly kind: string;
  /** True if a person sees it. */
  readonly isShown: boolean;
  readonly isSeenByModel: boolean;
}

/** Beginnings of texts that no person wrote, and their kinds. */
const BEGINNINGS: readonly (readonly [beginning: string, kind: string, isShown: boolean])[] = [
  ["<local-command-caveat>", "command-caveat", false],
  ["<local-command-stdout>", "command-output", true],
  ["<local-command-stderr>", "command-output", true],
  ["<command-name>", "command", true],
  ["<command-message>", "command", true],
  ["<bash-input>", "bash", true],
  ["<bash-stdout>", "bash-output", true],
  ["<bash-stderr>", "bash-output", true],
  ["<task-notification>", "task-notification", true],
  ["<system-reminder>", "reminder", false],
  ["[Request interrupted by user", "interrupt", true],
];

/** Returns the kind of a user record that is no turn of a person; undefined for a person's. */
export function detectClaudeHarness(record: Readonly<Record<string, unknown>>, text: string): Harness | undefined {
  if (record.isVisibleInTranscriptOnly === true)
    return { kind: "transcript-only", isShown: true, isSeenByModel: false };
  if (record.isMeta === true) return { kind: "meta", isShown: false, isSeenByModel: true };
  const { origin } = record;
  const kind = isObject(origin) ? origin.kind : undefined;
  if (typeof kind === "string" && /^[a-z][a-z-]{0,40}$/.test(kind))
    return kind === "human" ? undefined : { kind, isShown: true, isSeenByModel: true };
  const begun = text.trimStart();
  const known = BEGINNINGS.find(([beginning]) => begun.startsWith(beginning));
  return known && { kind: known[1], isShown: known[2], isSeenByModel: true };
}
