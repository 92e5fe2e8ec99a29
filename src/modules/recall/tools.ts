/** The tools, in the order in which models see them. */

import { Failure } from "../../core/failure.ts";
import type { RecallOutcome } from "../../server/recall-module.ts";
import { compare, tree } from "./branches.ts";
import { find } from "./find.ts";
import { history } from "./history.ts";
import type { Library } from "./library.ts";
import { open } from "./open.ts";
import { CallMistake, checkArguments, type ToolArguments, toInputSchema } from "./params.ts";
import { recent } from "./recent.ts";
import { explainFailure, type Tool } from "./shared.ts";

export const tools: readonly Tool[] = [find, recent, open, tree, compare, history];

/** Runs a tool. A mistake in the arguments and a failure are texts, too, which the model can act on. */
export async function runTool(library: Library, tool: Tool, given: ToolArguments): Promise<RecallOutcome> {
  try {
    const args = checkArguments(tool.params, given);
    const redaction = await library.redaction();
    return { text: await tool.run({ library, args, redaction }), isError: false };
  } catch (error) {
    // Failures come as they are within this process, and as error members over a wire.
    const isFailure = error instanceof Failure || typeof (error as { error?: unknown }).error === "object";
    const isKnown = error instanceof CallMistake || isFailure;
    if (!isKnown) return { text: "The call failed inside the server.", isError: true };
    const redaction = await library.redaction();
    return { text: redaction.text(explainFailure(error)), isError: true };
  }
}

/** Returns the tools as tools/list has them. */
export function describeTools(): object[] {
  return tools.map(({ name, title, description, params }) => ({
    name,
    title,
    description,
    inputSchema: toInputSchema(params),
    annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  }));
}
