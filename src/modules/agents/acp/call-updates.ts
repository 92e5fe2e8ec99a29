/** Makes updates of tool calls and their results, the same during the turn and from the session. */

import { type LooseMembers, toBlocks } from "../../../core/format/loose.ts";
import { type AcpBlock, renderBlock } from "./blocks.ts";
import { getDiffs, getLocations, getToolKind, getToolTitle } from "./tools.ts";

/** A tool call, for the client. */
export interface AcpToolCall {
  readonly toolCallId: string;
  readonly name: string;
  readonly arguments: unknown;
}

/** Returns the update about a call that has not begun. */
export function makeCallUpdate({ toolCallId, name, arguments: given }: AcpToolCall, cwd: string) {
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
  return {
    sessionUpdate: "tool_call_update",
    toolCallId: call.toolCallId,
    status: hasFailed ? "failed" : "completed",
    content: [...(hasFailed ? [] : getDiffs(call.name, call.arguments, cwd)), ...toCallContent(content)],
    ...(details === undefined ? {} : { rawOutput: details }),
  };
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
