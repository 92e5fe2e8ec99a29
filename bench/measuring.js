// Rows measured in turn with what they are held against, so that a drift of the machine meets all of them.

import { ours, using } from "./asking.js";
import { figure, request } from "./measure.js";
import { options, piRuns, quick, runs } from "./options.js";
import { session } from "./rows.js";

/**
 * A server keeps the machine code of what was asked of it, two seconds after its start. What is measured are those that
 * come after one that opened a session and read it, which is how users find them.
 */
export async function warmUp() {
  const file = session("realistic", 1000);
  await using(ours("--no-session"), async (child) => {
    const asked = [
      ["get_state"],
      ["switch_session", { sessionPath: file }],
      ["get_messages"],
      ["get_tree", { limit: 100 }],
    ];
    await child.ask(asked.map(([method, params], id) => request(id, method, params)));
    if (!quick) await new Promise((resolve) => setTimeout(resolve, 3000));
  });
}

/** Returns what was measured of the rows that the command line wants. */
export async function measureRows(rows, pis = []) {
  const measured = [];
  for (const row of rows) {
    if (!row.what.includes(options.rows)) continue;
    if (!options.json) process.stderr.write(`${row.what} ...\n`);
    const values = { ours: [], against: [], pis: pis.map(() => []) };
    await row.prepare?.();
    for (let n = 0; n < runs; n++) {
      values.ours.push(await row.ours());
      if (row.against) values.against.push(await row.against[1]());
      if (n < piRuns)
        for (const [index, pi] of pis.entries())
          values.pis[index].push(await Promise.resolve(row.pi?.(pi)).catch(() => undefined));
    }
    const known = (list) => (list.some((value) => value === undefined) || list.length === 0 ? undefined : figure(list));
    measured.push({
      what: row.what,
      unit: row.unit,
      goal: row.goal,
      more: row.more ?? false,
      ours: figure(values.ours),
      against: row.against && { what: row.against[0], ...known(values.against) },
      pis: Object.fromEntries(pis.map(({ name }, index) => [name, known(values.pis[index])])),
    });
  }
  return measured;
}
