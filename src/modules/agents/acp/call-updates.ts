/** Makes updates of tool calls and their results, the same during the turn and from the session. */

import { isObject, type LooseMembers, toBlocks, toMembers } from "../../../core/format/loose.ts";
import { type AcpBlock, isAcpBlock, renderBlock } from "./blocks.ts";
import { getDiffs, getLocations, getToolKind, getToolTitle, isToolKind, makeLocation } from "./tools.ts";

/** A tool call, for the client. */
export interface AcpToolCall {
  readonly toolCallId: string;
  readonly name: string;
  readonly arguments: unknown;
  /** Members that an agent of the protocol gave. */
  readonly acp?: LooseMembers | undefined;
}

/** Returns the update about a call that has not begun. */
export function makeCallUpdate({ toolCallId, name, arguments: given, acp }: AcpToolCall, cwd: string) {
  if (acp) {
    const rawInput = Object.keys(toMembers(given)).length > 0 ? { rawInput: given } : {};
    return {
      sessionUpdate: "tool_call",
      toolCallId,
      title: name,
      ...rawInput,
      ...pickCallMembers(acp),
      status: "pending",
    };
  }
  const locations = getLocations(given, cwd);
  return {
    sessionUpdate: "tool_call",
    toolCallId,
    title: getToolTitle(name, given),
    ...(name === "" ? {} : { name }),
    kind: getToolKind(name),
    status: "pending",
    ...(locations.length === 0 ? {} : { locations }),
    ...(given === undefined ? {} : { rawInput: given }),
  };
}

/** Returns the update about the result of a call. */
export function makeResultUpdate(call: AcpToolCall, { content, details, isError }: LooseMembers, cwd: string) {
  const hasFailed = isError === true;
  const status = hasFailed ? "failed" : "completed";
  const { toolCallId } = call;
  const { acp } = toMembers(details);
  if (isObject(acp)) return { sessionUpdate: "tool_call_update", toolCallId, ...pickCallMembers(acp), status };
  return {
    sessionUpdate: "tool_call_update",
    toolCallId,
    status,
    content: [...(hasFailed ? [] : getDiffs(call.name, call.arguments, cwd)), ...toCallContent(content)],
    ...(details === undefined ? {} : { rawOutput: details }),
  };
}

/** The members of calls, each with a function that returns a stored value as clients take it, or undefined. */
const MEMBERS: Readonly<Record<string, (value: unknown) => unknown>> = {
  title: (value) => (typeof value === "string" ? value : undefined),
  name: (value) => (typeof value === "string" ? value : undefined),
  kind: (value) => (isToolKind(value) ? value : undefined),
  status: (value) => (/^(?:pending|in_progress|completed|failed)$/.test(String(value)) ? value : undefined),
  locations: (value) => (Array.isArray(value) ? value.map(toMembers).flatMap(toLocation) : undefined),
  content: (value) => (Array.isArray(value) ? value.map(toMembers).filter(isShown) : undefined),
  rawInput: (value) => value,
  rawOutput: (value) => value,
  _meta: (value) => (isObject(value) ? value : undefined),
};

/** Returns the members of a call as an agent of the protocol gave them. */
export function pickCallMembers(acp: LooseMembers): LooseMembers {
  const found = Object.entries(MEMBERS).map(([name, pick]) => [name, pick(acp[name])] as const);
  return Object.fromEntries(found.filter(([, value]) => value !== undefined));
}

function toLocation({ path, line }: LooseMembers): object[] {
  return typeof path === "string" ? [makeLocation(path, line)] : [];
}

/** Returns whether a client can show a part of a result. A terminal has ended with the agent's process. */
function isShown({ type, content, path, oldText, newText }: LooseMembers): boolean {
  if (type === "content") return isAcpBlock(toMembers(content));
  const isOld = oldText === undefined || oldText === null || typeof oldText === "string";
  return type === "diff" && typeof path === "string" && typeof newText === "string" && isOld;
}

/** Returns the update about a call without a result, whose agent has ended. */
export function makeAbandonedUpdate(toolCallId: string) {
  const content = [toTextContent("There is no result of this call: the agent ended, or was ended, before it.")];
  return { sessionUpdate: "tool_call_update", toolCallId, status: "failed", content };
}

export function toTextContent(text: string): { type: "content"; content: AcpBlock } {
  return { type: "content", content: { type: "text", text } };
}

/** Returns the content of a result as content of a call. A call's content is sent whole. */
export function toCallContent(content: unknown): object[] {
  return toBlocks(content).flatMap((block) => {
    if (block.type === "text" && typeof block.text === "string")
      return block.text === "" ? [] : [toTextContent(block.text)];
    return [...renderBlock(block)].map(({ block: shown }) => ({ type: "content", content: shown }));
  });
}
