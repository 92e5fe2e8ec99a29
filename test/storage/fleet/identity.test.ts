/**
 * Another database at the address of a fleet: it is not taken for the one that was there. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { expect, test, vi } from "vitest";
import { Database } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { temporaryPlace } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";

test("another database at the same address gets nothing before it is adopted, and then all that this machine has acknowledged", {
  timeout: 60_000,
  ...needs(POSTGRESQL),
}, async ({ onTestFinished }) => {
  const server = new Database({ isEmpty: true });
  onTestFinished(() => server.close());
  await server.start();
  const machine = temporaryPlace();
  const variables = { PI_FLEET_URL: server.url };
  const place = { ...machine, variables: { ...machine.variables, ...variables } };
  const verb = (name: string) => runHere(place, ["fleet", name], { variables });
  // By who runs the servers, somewhere else.
  const admin = temporaryPlace();
  const migrate = () => runHere(admin, ["fleet", "migrate"], { variables });
  await migrate();
  const lives = new HereLives({ place });
  const first = await lives.start();
  await first.result("append", { entries: [user("one")] });
  const { sessionId, durability } = await first.result("get_state");
  expect(durability).toBe("primary");
  await lives.end();
  // It is made anew, or a mistake of whoever runs the servers leads here.
  server.sql("drop schema pi_fleet cascade");
  await migrate();
  // Ten times as fast, because a database that was away is asked again after a second.
  const now = performance.now.bind(performance);
  const begun = now();
  vi.spyOn(performance, "now").mockImplementation(() => begun + 10 * (now() - begun));
  const next = await lives.start(["--session", sessionId, "--fleet-away", "journal"]);
  expect(await next.result("append", { entries: [user("two")] })).toMatchObject({ durability: "local" });
  expect(server.sql("select count(*) from pi_fleet.session")).toBe("0");
  const refused = await verb("verify");
  expect(refused.stdout + refused.stderr).toContain("fleet adopt");
  expect((await verb("adopt")).stderr).toBe("");
  const reached = async (): Promise<string> => (await next.result("get_state")).durability;
  await expect.poll(reached, { timeout: 20_000, interval: 20 }).not.toBe("local");
  expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("2");
});
