/**
 * The process of an agent by itself.
 *
 * @module-tag system
 */

import { expect, test } from "vitest";
import { askAgentVersion } from "../../../src/cli/agent-version.ts";
import { AgentProcess } from "../../../src/modules/agents/behind/process.ts";

/** An agent that prints its variables in what could be a version. */
const PRINTS = 'console.log("1.0.0+" + Buffer.from(JSON.stringify(process.env)).toString("base64url"))';
const words = [process.execPath, "-e", PRINTS, "--"];

type Variables = Readonly<Record<string, string | undefined>>;

/** Starts it to work with it. Returns its output. */
async function working(variables: Variables): Promise<string> {
  const lines: string[] = [];
  await new Promise<void>((resolve) => {
    new AgentProcess({ words, variables, within: 30_000, maxLineBytes: 1 << 20, complain: () => {} }, process.cwd(), {
      line: (line) => void lines.push(line.toString("utf8")),
      tooLong() {},
      through() {},
      drained() {},
      ended: () => resolve(),
    });
  });
  return lines.join("");
}

test.each([
  ["works", working],
  [
    "is asked for its version",
    (variables: Variables) => askAgentVersion({ words, protocol: "pi", within: 1 }, variables),
  ],
] as const)("an agent that %s gets no key of the fleet's database", async (_when, start) => {
  const given = { PI_FLEET_URL: "postgres://me:secret@db/a", PGPASSWORD: "secret", PGUSER: "me", OTHER: "one" };
  const printed = (await start({ ...process.env, ...given })) as string;
  const seen = JSON.parse(Buffer.from(printed.replace("1.0.0+", ""), "base64url").toString("utf8"));
  expect(seen).toMatchObject({ PGUSER: "me", OTHER: "one", PATH: process.env.PATH });
  expect(JSON.stringify(seen)).not.toContain("secret");
});
