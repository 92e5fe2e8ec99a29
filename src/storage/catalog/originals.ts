/** Finds the entries that another agent's fork copied from its original: their usage counts in the original. */

import { AGENTS } from "../../core/foreign/agents.ts";
import { Ids } from "../../core/foreign/ids.ts";
import { parse } from "../../core/json/json.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import { getIdInPath } from "../../core/search/listing.ts";
import type { TakenFromOriginal } from "../../core/session/stats.ts";

/**
 * Returns the copied part of a fork: its entries up to the first message of its own. A copy has the id of the entry in
 * the original, or, from agents that give copies ids and times of their own, the same message as the next one there.
 */
export function findTakenOver(fork: Log, original: Log): TakenFromOriginal | undefined {
  const { nodes } = fork;
  let last = -1;
  let next = nextMessage(original, 0);
  for (let position = 0; position < nodes.count; position++) {
    const same = original.nodes.position(nodes.id(position));
    const isMessage = nodes.type(position) === "message";
    if (same >= 0) {
      last = position;
      if (isMessage) next = nextMessage(original, same + 1);
    } else if (isMessage) {
      if (next >= original.nodes.count || said(fork, position) !== said(original, next)) break;
      last = position;
      next = nextMessage(original, next + 1);
    }
  }
  return last < 0 ? undefined : { session: original.header.id, lastId: nodes.id(last) };
}

function nextMessage({ nodes }: Log, from: number): number {
  let at = from;
  while (at < nodes.count && nodes.type(at) !== "message") at++;
  return at;
}

/** Returns the text that identifies copies of a message: everything but its time. */
function said(log: Log, position: number): string {
  const { message } = parse(log.read(position)) as { message?: object };
  return JSON.stringify({ ...message, timestamp: undefined });
}

/**
 * Returns the possible ids of a fork's original as a session of ours, by the path that the fork names: the id in the
 * name, and those that follow from the agent's id in the name of its file or folder.
 */
export function deriveOriginalIds(parentSession: string, sha256: Env["sha256"]): string[] {
  const [name = "", folder = ""] = parentSession.split(/[/\\]/).reverse();
  const plain = name.replace(/\.(?:jsonl?|jsonl\.zst)$/, "");
  const natives = new Set([plain, plain.slice(-UUID), folder]);
  const derived = AGENTS.flatMap((agent) => {
    const ids = new Ids(agent, sha256);
    return [...natives].map((native) => ids.session(native));
  });
  return [getIdInPath(parentSession), ...derived];
}

/** Characters of a UUID, which some agents write after the time. */
const UUID = 36;
