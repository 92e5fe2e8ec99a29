// Rows that bench/catalog.js measures, as rows of the table.

import { fileURLToPath } from "node:url";
import { counted, runFresh, toFigure } from "./measure.js";
import { env, node, options, quick } from "./options.js";

/** The finder has a bench of its own. */
export async function measureListing(pis) {
  if (options.rows !== "" && !"list search".includes(options.rows)) return [];
  const sessions = quick ? 20 : 1000;
  const script = fileURLToPath(new URL("catalog.js", import.meta.url));
  const size = ["--sessions", String(sessions), "--kilobytes", quick ? "50" : "550", "--rounds", quick ? "5" : "100"];
  const found = await runFresh(node, [script, ...size, "--libraries", JSON.stringify(pis), "--json"], env);
  if (!found) return [];
  const one = (what, value, goal) => ({ what, unit: "ms", goal, ours: toFigure([value]) });
  const theirs = Object.entries(found.libraries ?? {}).map(([name, { ms }]) => [name, toFigure([ms])]);
  const first = `list ${counted(sessions)} sessions, ${found.megabytes} MB, first time`;
  return [
    { ...one(first, found.coldListSeconds * 1000, "350 ms"), pis: Object.fromEntries(theirs) },
    one("- page of 50, p95", found.listP95, "10 ms"),
    one("- search for two words, p95", found.searchP95, "20 ms"),
    one("- usage, first time", found.firstUsageMilliseconds, ""),
    one("- usage, warm p95", found.usageP95, "50 ms"),
  ];
}
