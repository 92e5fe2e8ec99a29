/**
 * Files of other agents that are none of ours: `PI_TEST_FOREIGN` names a folder of them, such as fixtures of other
 * projects, which are not kept here. A table tells what became of each. Without it, this is skipped.
 */

import { readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { expect, test } from "vitest";
import { Session } from "../../src/core/session/session.ts";
import { foreignStore } from "../../src/storage/foreign/store.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { testEnv } from "../support/env.ts";
import { fidelityOf, foreignSession, leftOut, requireSound } from "../support/foreign/checks.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { temporaryFolder } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const FOLDER = process.env.PI_TEST_FOREIGN;

/** Returns a row of the table: what a session is, what is left out of its contexts, and what is reported. */
function rowOf(name: string, session: Session): string {
  const { agent, records, kinds, warnings } = fidelityOf(session.log);
  const { leaves, unanswered, unasked } = leftOut(session);
  const sum = (fate: "preserved" | "derived" | "dropped"): number => kinds.reduce((all, kind) => all + kind[fate], 0);
  const lost = kinds.filter(({ dropped }) => dropped > 0).map(({ kind, dropped }) => `${dropped} ${kind}`);
  const cells = [
    name,
    agent,
    records,
    session.log.nodes.count,
    leaves,
    `${sum("preserved")} / ${sum("derived")} / ${sum("dropped")}`,
    [...unanswered].join(", "),
    [...unasked].join(", "),
    [...lost, ...warnings.map((warning) => JSON.stringify(warning))].join("; "),
  ];
  return `| ${cells.join(" | ")} |`;
}

acrossTiers(test, FORMATS)("in made-up files, no call loses its result ($format)", ({ path, text }) => {
  expect([...leftOut(foreignSession(text, `/home/me/${path}`)).torn]).toEqual([]);
});

test.skipIf(FOLDER === undefined)("in the files of a folder", () => {
  const folder = FOLDER as string;
  const store = foreignStore(realDisk, { ...testEnv(), now: () => Date.now() }, temporaryFolder());
  const rows: string[] = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath, entry.name);
    const log = store.open(file);
    if (!log) continue;
    const session = new Session(log, testEnv());
    requireSound(session);
    expect([file, [...leftOut(session).torn]]).toEqual([file, []]);
    rows.push(rowOf(relative(folder, file), session));
    session.close();
  }
  for (const { format, path, text } of FORMATS)
    rows.push(rowOf(`ours: ${format}`, foreignSession(text, `/home/me/${path}`)));
  console.log(
    [
      "| file | agent | records | entries | leaves | preserved / derived / dropped | calls without a result | results without a call | lost, and told |",
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
      ...rows.sort(),
    ].join("\n"),
  );
});
