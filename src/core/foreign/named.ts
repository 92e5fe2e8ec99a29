/** Finds the sessions of other agents that a person names. */

import type { Catalog, Listed, Progress } from "../ports/catalog.ts";
import type { Env } from "../ports/env.ts";
import { filterByName, LEAST_OF_ID, type Naming } from "../search/named.ts";
import { AGENTS } from "./agents.ts";
import { Ids } from "./ids.ts";

interface OfAgents {
  readonly by?: Naming;
  readonly progress?: Progress;
  readonly sha256: Env["sha256"];
}

/** Returns the sessions of other agents that a word names, also by the agent's own id, or a part of it in the file's name. */
export async function findAgentSessions(
  catalog: Pick<Catalog, "list">,
  word: string,
  { by = "message", progress, sha256 }: OfAgents,
): Promise<readonly Listed[]> {
  const { found: all } = await catalog.list({ headerOnly: true, agents: AGENTS }, progress);
  const named = filterByName(all, word, "listed", by);
  // Our id of a session follows from the agent's own.
  const ids = new Map<string, string>(AGENTS.map((agent) => [agent, new Ids(agent, sha256).session(word)]));
  const found = named.length > 0 ? named : all.filter(({ agent, id }) => id === ids.get(`${agent}`));
  if (found.length > 0 || by === "whole" || word.length < LEAST_OF_ID) return found;
  return all.filter(({ path }) => (path.split(/[/\\]/).pop() ?? "").includes(word));
}
