/** The checker of runs with changes of files under an open server: its rules for reported and for hidden changes. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Episode, newRun } from "../support/foreign-changes.ts";
import { chain, fileText, headerText } from "../support/lines.ts";
import { Witness } from "../support/observer.ts";
import { Random } from "../support/random.ts";
import { temporaryPlace } from "../support/server.ts";

/** Makes only the requests of every round. */
class Nothing extends Random {
  override next(): number {
    return 0;
  }
}

const LINES = chain(6);

/**
 * A server that has looked at its file too early at the second request: it shows the old entries, and reports in the
 * same write, behind its replies, the kind of damage that it has found since.
 */
const SCRIPT = `
import { createInterface } from "node:readline";
const [lines, kind] = JSON.parse(process.argv[2]);
let asked = 0;
let out = "";
const say = (members) => (out += '{"jsonrpc":"2.0",' + members + "}\\n");
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (method === "get_entries") {
    asked++;
    say('"id":"' + id + '","result":{"entries":[' + lines.slice(0, asked < 3 ? 6 : 3).join(",") + "]}");
    return;
  }
  say('"id":"' + id + '","result":{"sessionId":"s"}');
  if (asked === 2 && kind !== null)
    say('"method":"session_damage","params":' + JSON.stringify({ sessionId: "s", damage: [{ kind }] }));
  process.stdout.write(out);
  out = "";
});
`;

test.each([
  ["lost_entries", "told"],
  ["bad_body", "hidden"],
  [null, "hidden"],
] as const)("entries that vanish behind a reply, after which %s was told, are %s", async (kind, verdict) => {
  const place = temporaryPlace();
  const file = join(place.cwd, "session.jsonl");
  const script = join(place.cwd, "server.mjs");
  writeFileSync(script, SCRIPT);
  writeFileSync(file, fileText(headerText(), ...LINES));
  const options = { store: "jsonl", framing: "lines", dialect: "jsonrpc", changes: 1 } as const;
  const run = newRun(new Nothing(1), options);
  const within = [process.execPath, script, JSON.stringify([LINES, kind])];
  const witness = new Witness({ args: [], place, within });
  const episode = new Episode(run, witness, file);
  await episode.quiet();
  writeFileSync(file, fileText(headerText(), ...LINES.slice(0, 3)));
  await episode.quiet();
  await episode.quiet();
  expect(run.wrong).toMatchObject({ faults: [], unsound: [] });
  expect(run.wrong.hidden).toHaveLength(verdict === "told" ? 0 : 1);
  for (const sentence of run.wrong.hidden) expect(sentence).toContain("reply get_entries, reply get_state");
  await episode.quiet();
  await witness.end();
  expect(witness.faults).toEqual([]);
});
