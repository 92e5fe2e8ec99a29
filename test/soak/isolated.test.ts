/**
 * The ordinary suite with the modules loaded anew for each file, its files and tests in random order. What a test leaves
 * behind in a module for another one shows here: the ordinary run shares modules (vitest.config.ts) and has one order.
 * Nothing is left out: every step of the sweeps (`share` and `isEvery` in test/support), and three times the seeds.
 */

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Json, temporaryFolder } from "../support/server.ts";
import { soak } from "../support/soak.ts";
import { TIERS } from "../support/tiers.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Units that run every file once: a unit takes a minute or less. */
const SHARES = 32;

soak("isolated", async (_random, number) => {
  const files = readdirSync(join(ROOT, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts") && !name.startsWith("soak"))
    .sort()
    .filter((_, n) => n % SHARES === number % SHARES)
    .map((name) => `test/${name}`);
  const vitest = join(dirname(createRequire(import.meta.url).resolve("vitest/package.json")), "vitest.mjs");
  const order = ["--isolate", "--sequence.shuffle", `--sequence.seed=${number}`, "--testTimeout=300000"];
  // Variables of this run for its workers are not for those of the other.
  const own = Object.entries(process.env).filter(([name]) => !/^VITEST|^PI_TEST_|^SOAK_|^NODE_ENV$/.test(name));
  const env = { ...Object.fromEntries(own), PI_TEST_EVERY: "1", PI_TEST_TIMES: "3" };
  let tests = 0;
  // Tiers have their own numbers of workers, and the options of the order take away that they run one after the other.
  for (const tier of TIERS) {
    const report = join(temporaryFolder(), "report.json");
    const how = [...order, "--project", tier, "--passWithNoTests"];
    const args = [vitest, "run", ...how, "--reporter=json", `--outputFile=${report}`, ...files];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, env });
    const { numPassedTests, testResults } = JSON.parse(readFileSync(report, "utf8"));
    const failed = testResults.flatMap(({ name, message, assertionResults }: Json) => [
      ...assertionResults
        .filter((one: Json) => one.status === "failed")
        .map(({ fullName, failureMessages: [why] }: Json) => `${name}: ${fullName}: ${why.slice(0, 300)}`),
      ...(message === "" ? [] : [`${name}: ${message}`]),
    ]);
    if (status !== 0)
      throw new Error(
        `PI_TEST_EVERY=1 PI_TEST_TIMES=3 vitest run ${how.join(" ")} ${files.join(" ")}\n${failed.join("\n")}\n${stderr}`,
      );
    tests += numPassedTests;
  }
  return { runs: 1, files: files.length, tests };
});
