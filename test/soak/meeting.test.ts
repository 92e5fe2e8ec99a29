/** Eight servers on one session, in every combination of store, durability, state folders, kills, namespaces and sharing. */

import { expectNothingWrong, type Meeting, meet, NODES, OWN_NAMESPACES } from "../support/meeting.ts";
import { soak } from "../support/soak.ts";

const WANTED = 130;

/** The combination of a number: every one of them within 64 numbers. */
function combination(number: number): Meeting {
  const bit = (n: number): boolean => ((number >> n) & 1) === 1;
  return {
    store: bit(0) ? "v2" : "jsonl",
    kills: bit(1),
    namespaces: bit(2) && OWN_NAMESPACES.length > 0,
    durability: bit(3) ? "os" : "sync",
    states: bit(4) ? "different" : "same",
    attach: bit(5) ? "auto" : "off",
    servers: 8,
    wanted: WANTED,
  };
}

soak("meeting", async (random, number) => {
  const options = combination(number);
  const met = await meet(random, options);
  expectNothingWrong(met, WANTED);
  const { lives, kills, acknowledged, locked, forks, lost, doubled, internalErrors, dead } = met;
  return {
    lives,
    kills,
    acknowledged,
    locked,
    forks,
    lost: lost.length,
    doubled: doubled.length,
    internalErrors,
    dead: dead.length,
    withNamespaces: options.namespaces ? acknowledged : 0,
    withSeveralNodes: NODES.length > 1 ? acknowledged : 0,
  };
});
