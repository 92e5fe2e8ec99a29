/** Lines of session files, written by hand the way Pi writes them. */

import { decodeText, toBytes } from "../../src/core/json/json.ts";

export const TIME = "2026-01-24T16:22:26.831Z";
export const SESSION = "01991f6e-1f1d-7c3e-b0a4-0242ac120002";

export function headerText(more: Record<string, unknown> = {}): string {
  return JSON.stringify({
    type: "session",
    version: 3,
    id: SESSION,
    timestamp: TIME,
    cwd: "/home/me/project",
    ...more,
  });
}

/** The line of an entry, base members first. */
export function entryText(
  type: string,
  id: string,
  parentId: string | null,
  rest: Record<string, unknown> = {},
): string {
  return JSON.stringify({ type, id, parentId, timestamp: TIME, ...rest });
}

export function userText(id: string, parentId: string | null, text = `say ${id}`): string {
  return entryText("message", id, parentId, { message: { role: "user", content: text } });
}

export function assistantText(id: string, parentId: string | null, text = `answer ${id}`): string {
  return entryText("message", id, parentId, {
    message: { role: "assistant", content: [{ type: "text", text }], provider: "anthropic", model: "sonnet" },
  });
}

/** Lines, each with its line feed. */
export function fileText(...lines: string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

export function fileBytes(...lines: string[]): Uint8Array {
  return toBytes(fileText(...lines));
}

/** The id of the n-th entry of a session made by hand: eight hex digits. */
export function id(n: number): string {
  return (0xa0000000 + n).toString(16);
}

/** A chain of user messages, the first a root. */
export function chain(count: number, from = 0): string[] {
  return Array.from({ length: count }, (_, i) => userText(id(from + i), from + i === 0 ? null : id(from + i - 1)));
}

/** Lines of a file, without the last when it is empty. */
export function linesOf(bytes: Uint8Array): string[] {
  const lines = decodeText(bytes).split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
