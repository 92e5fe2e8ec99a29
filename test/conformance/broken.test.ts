/**
 * Servers with one fault each: every one fails at the rule that it breaks, and at no others than look at the same.
 *
 * @module-tag system
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { THEMES } from "../../src/conformance/rules.ts";
import {
  combinationOf,
  evidenceOf,
  OF_PROCESSES,
  OWN,
  only,
  rulesThat,
  runHere,
  runKit,
  without,
} from "../support/conformance.ts";
import { FAULTS, type Fault, type FaultName, PROCESS_FAULTS } from "../support/faults.ts";
import { isEvery } from "../support/random.ts";
import { SWEEP } from "../support/tiers.ts";

// The server loads these when it first needs them, and no turn of this process shows that it waits for that.
import "../../src/handlers/shared/declarations.ts";
import "../../src/handlers/shared/hooks.ts";
import "../../src/server/openrpc.ts";

/** Milliseconds after which a reply counts as missing here. */
const TIMEOUT = 2000;

/** The theme that a rule belongs to. */
function themeOf(rule: string): string {
  return THEMES.find(({ rules }) => rules.some(({ name }) => name === rule))?.name ?? "";
}

/** Returns the themes of the ordinary suite for the rules that a fault breaks; the long runs look in all. */
function themesFor({ rule }: Fault): string[] {
  const all = THEMES.map(({ name }) => name);
  return all.filter((name) => isEvery() || [themeOf(rule), "throughout"].includes(name));
}

/** Returns the rules of these themes that a fault is expected to break, in order. */
function brokenBy({ rule, also = [] }: Fault, themes: readonly string[]): string[] {
  const names = [rule, ...also].filter((name) => themes.includes(themeOf(name)));
  return names.filter((name) => !OF_PROCESSES.includes(name)).sort();
}

/** Idle turns after which nothing more is expected. */
const QUIET_TURNS = 20;

/** Lets the next timer run out whenever nothing is under way: what never comes is missed at once, on a busy machine too. */
function skipWaits(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  let isOver = false;
  let quiet = 0;
  const look = (): void => {
    if (isOver) return;
    quiet = process.getActiveResourcesInfo().some((name) => name.includes("Req")) ? 0 : quiet + 1;
    if (quiet >= QUIET_TURNS) {
      quiet = 0;
      vi.advanceTimersToNextTimer();
    }
    setImmediate(look);
  };
  look();
  onTestFinished(() => {
    isOver = true;
    vi.useRealTimers();
  });
}

/** Faults of the tier `system`, each in another theme. */
const FEW: readonly string[] = [
  ...["answers twice", "calls failures errors only", "forgets nextCursor", "leaves out retryable", "omits success"],
  ...["prints a greeting", "remembers keys only while it lives"],
];

const named = Object.entries<Fault>(FAULTS);

const HERE = named.filter(([name]) => FEW.includes(name));
const OTHERS = named.filter(([name]) => !FEW.includes(name));

describe("a server that", () => {
  async function isFound(name: string, fault: Fault): Promise<void> {
    skipWaits();
    const { framing = "lines", dialect = "jsonrpc" } = fault;
    const themes = themesFor(fault);
    // Its wait of a second is for no other rule than itself.
    const rules = without(only(...themes), isEvery() ? [] : ["shutdown"]);
    const combinations = [combinationOf(framing, dialect)];
    const result = await runHere({ combinations, themes: rules, timeout: TIMEOUT }, name as FaultName);
    expect(rulesThat("failed", result).sort(), evidenceOf(result)).toEqual(brokenBy(fault, themes));
    expect(result.ok).toBe(false);
  }

  test.each(HERE)("%s", isFound);

  test.each(OTHERS)("%s", SWEEP, isFound);
});

describe("a process that", () => {
  const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  const outfile = join(folder, "faulty-server.mjs");

  beforeAll(() => {
    const entryPoints = [join(import.meta.dirname, "../support/faulty-server.ts")];
    buildSync({ entryPoints, outfile, bundle: true, platform: "node", format: "esm" });
  });

  afterAll(() => rmSync(folder, { recursive: true }));

  test.each(Object.entries<Fault>(PROCESS_FAULTS))("%s", async (name, fault) => {
    const result = await runKit({
      command: [process.execPath, outfile, name, ...OWN],
      combinations: [combinationOf("lines", "jsonrpc")],
      themes: only(
        ...(isEvery() ? ["durability"] : ["kill-acknowledged", "bytes-in-file"]),
        "first-reply",
        "throughout",
      ),
    });
    expect(rulesThat("failed", result).sort(), evidenceOf(result)).toEqual([fault.rule, ...(fault.also ?? [])].sort());
  });
});
