/** The branch that a move of the leaf leaves, as the hook session_before_tree describes it. */

import type { Session } from "../../core/session/session.ts";

/** Returns the preparation for a move to a position; `asked` is what the request says of a summary and a label. */
export function prepareMove(
  session: Session,
  target: number,
  asked: { readonly userWantsSummary: boolean; readonly label?: string } = { userWantsSummary: false },
) {
  const { tree, log } = session;
  const ancestor = tree.commonAncestor(tree.leaf, target);
  const left: unknown[] = [];
  for (let at = tree.leaf; at >= 0 && at !== ancestor; at = log.nodes.parent(at)) left.push(session.entry(at));
  return {
    targetId: session.idOrNull(target),
    oldLeafId: session.leafId,
    commonAncestorId: session.idOrNull(ancestor),
    entriesToSummarize: left.reverse(),
    ...asked,
  };
}
