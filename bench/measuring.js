// Measures rows in turn with their counterparts, so that a drift of the machine meets all of them.

import { makeFileName, message, ours, runWith, withBuild } from "./asking.js";
import { makeId, writeSession } from "./generate.js";
import { makeRequest, toFigure } from "./measure.js";
import { built, options, piRuns, quick, runs } from "./options.js";

/**
 * Two seconds after its start, a server keeps the machine code of the functions that requests used. Figures are of
 * servers that start after one has worked for a minute, as users find them.
 */
export async function warmUp(builds = []) {
  const file = makeFileName();
  writeSession(file, 1000, "realistic");
  const entryId = makeId(996);
  const asked = [
    ["get_state"],
    ["switch_session", { sessionPath: file }],
    ["get_messages"],
    ["get_tree", { limit: 100 }],
    ["get_fork_messages"],
    ["append", { entries: [message] }],
    ["branch", { entryId }],
    ["compact_append", { summary: "so far", firstKeptEntryId: entryId, tokensBefore: 1 }],
    ["fork", { entryId, position: "at" }],
    ["list_sessions", { limit: 1 }],
  ];
  for (const build of [built, ...builds])
    await withBuild(build, () =>
      runWith(ours("--no-session"), async (child) => {
        await child.ask(asked.map(([method, params], id) => makeRequest(id, method, params)));
        if (!quick) await new Promise((resolve) => setTimeout(resolve, 3000));
      }),
    );
}

/** Returns the results of the rows named on the command line, also for other builds of ours and for Pis. */
export async function measureRows(rows, { builds = [], pis = [] } = {}) {
  const measured = [];
  for (const row of rows) {
    if (!row.what.includes(options.rows)) continue;
    if (!options.json) process.stderr.write(`${row.what} ...\n`);
    const times = row.times ?? 1;
    const values = { ours: [], against: [], others: new Map([...builds, ...pis].map(({ name }) => [name, []])) };
    for (const build of [built, ...builds]) await withBuild(build, async () => row.prepare?.());
    for (let n = 0; n < runs * times; n++) {
      values.ours.push(await row.ours());
      if (row.against) values.against.push(await row.against[1]());
      for (const build of builds)
        values.others.get(build.name).push(await withBuild(build, row.ours).catch(() => undefined));
      if (n < piRuns * times)
        for (const pi of pis)
          values.others.get(pi.name).push(await Promise.resolve(row.pi?.(pi)).catch(() => undefined));
    }
    const known = (list) =>
      list.some((value) => value === undefined) || list.length === 0 ? undefined : toFigure(list);
    // A system without the means of a row has no figure.
    if (known(values.ours) === undefined) continue;
    measured.push({
      what: row.what,
      unit: row.unit,
      goal: row.goal,
      more: row.more ?? false,
      ours: toFigure(values.ours),
      against: row.against && { what: row.against[0], ...known(values.against) },
      pis: Object.fromEntries([...values.others].map(([name, list]) => [name, known(list)])),
    });
  }
  return measured;
}
