/** Matches a session of ours to the session of an ACP agent that continues it. */

import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { Session } from "../../../core/session/session.ts";

/** The `customType` of the entry that names the agent's session. */
export const SESSION_NOTE = "acp";

/** The match of a session with those of an agent. */
interface AgentSessionMatch {
  readonly leafId: string | null;
  readonly isEmpty: boolean;
  /** The agent's session with exactly the entries of the path. */
  readonly knownAs: string | undefined;
  /** The agent's session that ours was copied from, with all its entries. */
  readonly copyOf: string | undefined;
}

/** Matches by the entries of the path. */
export function matchAgentSession(session: Session, agentName: string): AgentSessionMatch {
  const { tree, log, leafId } = session;
  const { nodes } = log;
  let isEmpty = true;
  const hasMore = tree.leaf >= 0 && tree.childCount(tree.leaf) > 0;
  let match: Pick<AgentSessionMatch, "knownAs" | "copyOf"> = { knownAs: undefined, copyOf: undefined };
  let isTheirs = true;
  for (let at = tree.leaf; at >= 0; at = nodes.parent(at)) {
    const type = nodes.type(at);
    if (type === "message") {
      isEmpty = false;
      // Another agent continued from there.
      if (nodes.role(at) === "assistant" && toMembers(session.entry(at).message).api !== "acp") isTheirs = false;
    }
    if (type !== "custom") continue;
    const { customType, data } = session.entry(at) as LooseMembers;
    if (customType !== SESSION_NOTE) continue;
    const { agent, agentSessionId, sessionId = session.id } = toMembers(data);
    const isMeant = isTheirs && !hasMore && toStored(toMembers(agent).name) === agentName;
    if (isMeant && typeof agentSessionId === "string")
      match = sessionId === session.id ? { ...match, knownAs: agentSessionId } : { ...match, copyOf: agentSessionId };
    isEmpty = false;
    break;
  }
  return { leafId, isEmpty, ...match };
}
