/** recover: the entries that a fleet refused, from the command line. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { id, userText } from "../../support/lines.ts";
import { temporaryPlace } from "../../support/server.ts";
import { runHere, stored } from "../../support/verbs.ts";

test("an edited line stays in the file until it is named", async () => {
  const place = temporaryPlace();
  const file = stored(place, "one", [userText(id(0), null, "right")]);
  const folder = join(place.state, "quarantine");
  const keptAt = join(folder, "edited.refused.bin");
  mkdirSync(folder, { recursive: true });
  const [header] = readFileSync(file, "utf8").split("\n");
  writeFileSync(keptAt, `${header}\n${userText(id(0), null, "altered")}\n`);
  const recover = async (...args: string[]): Promise<string> => (await runHere(place, ["recover", ...args])).stdout;
  expect(await recover(keptAt)).toMatch(/Nothing was added.*\n.* stays in the file: the session has .* other bytes/);
  expect(readFileSync(file, "utf8")).not.toContain("altered");
  expect(await recover(keptAt, id(0))).toMatch(
    /1 entry is a branch .*\n.* because others gave its id to another entry/,
  );
  expect(readFileSync(file, "utf8")).toContain("altered");
  expect(await recover()).toContain("No refused entries are kept.");
});
