/** The process of an agent by itself. */

import { expect, test } from "vitest";
import { AgentProcess } from "../../../src/server/agent/process.ts";

test("an agent gets the variables of the server but those that give the fleet's database to whoever has them", async () => {
  const lines: string[] = [];
  const given = { PI_FLEET_URL: "postgres://me:secret@db/a", PGPASSWORD: "secret", PGUSER: "me", OTHER: "one" };
  const program = "console.log(JSON.stringify(process.env))";
  await new Promise<void>((resolve) => {
    new AgentProcess(
      {
        words: [process.execPath, "-e", program],
        variables: { ...process.env, ...given },
        maxLineBytes: 1 << 20,
        complain: () => {},
      },
      process.cwd(),
      {
        line: (line) => void lines.push(line.toString("utf8")),
        tooLong() {},
        through() {},
        drained() {},
        ended: () => resolve(),
      },
    );
  });
  const seen = JSON.parse(lines.join(""));
  expect(seen).toMatchObject({ PGUSER: "me", OTHER: "one", PATH: process.env.PATH });
  expect(JSON.stringify(seen)).not.toContain("secret");
});
