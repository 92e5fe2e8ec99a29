/** The whole state of a log and its session, for comparing ways of opening. */

import { decodeText } from "../../src/core/json/json.ts";
import type { Log } from "../../src/core/ports/store.ts";
import { Session } from "../../src/core/session/session.ts";
import { testEnv } from "./env.ts";

/** All that can be asked of a log, without its damage's growing by the asking. */
function describeLog(log: Log): unknown {
  const { nodes } = log;
  const damage = log.damage.map((found) => ({ ...found }));
  const entries = Array.from({ length: nodes.count }, (_, p) => ({
    id: nodes.id(p),
    at: nodes.position(nodes.id(p)),
    parent: nodes.parent(p),
    type: nodes.type(p),
    role: nodes.role(p),
    flags: [nodes.isMarker(p), nodes.isBatch(p), nodes.hasNoMessage(p)],
    length: log.length(p),
  }));
  const texts = Array.from({ length: nodes.count }, (_, p) => decodeText(log.read(p)));
  const session = new Session(log, testEnv());
  return {
    header: log.header,
    headerLine: decodeText(log.headerLine),
    version: log.version,
    readOnly: log.readOnly?.message,
    mayHideEntries: log.mayHideEntries,
    damage,
    entries,
    texts,
    later: log.damage,
    leaf: session.leafId,
    figures: Array.from({ length: nodes.count }, (_, p) => {
      const { tree } = session;
      const inherited = [tree.lastCompaction(p), tree.lastModel(p), tree.lastLevel(p)];
      return [tree.depth(p), tree.childCount(p), tree.yieldCount(p), tree.systemCount(p), ...inherited];
    }),
    state: [session.tree.entryCount, session.tree.branchCount, session.messageCount(), session.name, session.model()],
    labels: [...session.tree.labels],
  };
}

/** Returns the state of the opened log, or the error of `open`. */
export function outcome(open: () => Log): unknown {
  let log: Log | undefined;
  try {
    log = open();
    return describeLog(log);
  } catch (error) {
    return String(error);
  } finally {
    log?.close();
  }
}
