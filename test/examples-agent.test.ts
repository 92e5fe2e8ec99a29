import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { temporaryPlace } from "./support/server.ts";

test("the example agent lives its whole life, and all its checks hold", async () => {
  const agent = fileURLToPath(new URL("../examples/agent.js", import.meta.url));
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [agent], {
    env: { ...process.env, HOME: temporaryPlace().home },
  });
  expect(stderr).toBe("");
  expect(stdout).toContain("compacted: ");
  expect(stdout.match(/^ {3}ok: /gm)).toHaveLength(11);
  expect(stdout).not.toContain("FAILED");
});
