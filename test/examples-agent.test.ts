/**
 * The examples that show an agent, run to their end.
 *
 * @module-tag system
 */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { temporaryPlace } from "./support/server.ts";

/** Returns what an example prints. */
async function printed(name: string): Promise<string> {
  const script = fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [script], {
    env: { ...process.env, HOME: temporaryPlace().home },
  });
  expect(stderr).toBe("");
  return stdout;
}

test("two hosts share a session, also when the server that holds it is killed", async () => {
  const stdout = await printed("two-hosts.js");
  expect(stdout).toContain("holds the session now");
  const texts = [
    "Rename the store.",
    "And keep the old name as an alias.",
    "Done, with an alias.",
    "Did the tests pass?",
  ];
  const listed = stdout.slice(stdout.indexOf("each of them once")).matchAll(/^ +(?:user|assistant): (.*)$/gm);
  expect([...listed].map(([, text]) => text)).toEqual([...texts, "Yes: 12 of 12."]);
});

test("the example agent lives its whole life, and all its checks hold", async () => {
  const stdout = await printed("agent.js");
  expect(stdout).toContain("compacted: ");
  expect(stdout.match(/^ {3}ok: /gm)).toHaveLength(11);
  expect(stdout).not.toContain("FAILED");
});
