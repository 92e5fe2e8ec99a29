/** Matches a session of ours to the session of an ACP agent that continues it, or makes the seed for a new one. */

import { toParagraphs } from "../../../core/context/summariser-input.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import { parse } from "../../../core/json/json.ts";
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

/** Characters of a seed: some 50,000 tokens, which leaves most models room to work. The newest ones are kept. */
const LONGEST = 200_000;

/** Returns the seed, the conversation at the leaf as text for an agent that cannot load it; undefined when it is empty. */
export function makeSeed(session: Session): string | undefined {
  const { items } = session.context();
  const words: string[] = [];
  for (const text of session.messageTexts(items)) words.push(...toParagraphs(parse(text) as Record<string, unknown>));
  if (words.length === 0) return undefined;
  const kept: string[] = [];
  let length = 0;
  for (const paragraph of words.reverse()) {
    if (length + paragraph.length > LONGEST) {
      kept.push(kept.length === 0 ? paragraph.slice(-LONGEST) : "[What came before is left out.]");
      break;
    }
    length += paragraph.length;
    kept.push(paragraph);
  }
  const intro =
    "This conversation was begun in another session, which follows. Go on with it: what comes after it is the next message of the person.";
  return `${intro}\n\n<conversation>\n${kept.reverse().join("\n\n")}\n</conversation>\n\n`;
}
