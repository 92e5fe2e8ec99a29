/** The param of lists and searches that names agents. */

import * as z from "zod";
import { AGENTS } from "../../core/foreign/agents.ts";
import { OUR_AGENT } from "../../core/ports/catalog.ts";

/** The names that the param takes. */
const AGENT_NAMES: readonly string[] = [OUR_AGENT, ...AGENTS];

export const agentsParam = z
  .union([z.literal("all"), z.array(z.enum(AGENT_NAMES)).min(1)])
  .optional()
  .describe(
    "whose sessions: those of other agents are found where these keep them on this machine, and opened by their " +
      "path, for reading only; `pi` names our own, which are the only ones by default",
  );

/** The member of a result that names an agent. */
export const agentMember = z
  .string()
  .optional()
  .describe("the agent whose own file it is; missing for sessions of ours");

export function toAgentNames(agents: z.output<typeof agentsParam>): readonly string[] | undefined {
  return agents === "all" ? AGENT_NAMES : agents;
}
