/** The entry by which a caller changes what the model sees of an earlier one. */

import { Failure } from "../core/failure.ts";
import { type Draft, draftOfValues } from "../core/format/entry.ts";
import type { Session } from "../core/session/session.ts";
import { positionOf } from "./sessions.ts";
import type { ContextEditEntry } from "./types.ts";

/**
 * Returns the draft of a context edit. Throws entry_not_found, and invalid_entry when the entry is not on the path or
 * has no content to edit.
 */
export function contextEdit(session: Session, targetId: string, replacement: ContextEditEntry["replacement"]): Draft {
  if (replacement !== null && typeof replacement?.content !== "string" && !Array.isArray(replacement?.content))
    throw new Failure("invalid_entry", "A replacement is null, or its content is a string or a list of blocks.");
  const target = positionOf(session, targetId);
  const { tree, log } = session;
  const fault = (sentence: string): Failure => new Failure("invalid_entry", sentence, { entryId: targetId });
  if (!tree.isAncestor(target, tree.leaf)) throw fault(`Entry ${targetId} is not on the path to the leaf.`);
  const isCustom = log.nodes.isType(target, "custom_message");
  const role = log.nodes.role(target);
  if (!isCustom && !["user", "assistant", "toolResult"].includes(role))
    throw fault(`Entry ${targetId} has no content that the model sees.`);
  const inBlocks = !isCustom && role !== "user" && typeof replacement?.content === "string";
  const content = inBlocks ? [{ type: "text", text: replacement.content }] : replacement?.content;
  return draftOfValues("context_edit", { targetId, replacement: replacement && { ...replacement, content } });
}
