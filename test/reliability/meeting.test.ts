/**
 * Several servers on one session at once (short form; every combination and 20,000 entries in soak).
 *
 * @module-tag sweep
 */

import { describe, expect, test } from "vitest";
import { NETWORK_NAMESPACES } from "../support/elsewhere.ts";
import { type Meeting, meet, OWN_NAMESPACES } from "../support/meeting.ts";
import { needs } from "../support/needs.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

const SHORT = { servers: 3, wanted: 10, states: "same", namespaces: false, attach: "off" } as const;

function check(options: Meeting): Promise<void> {
  return forSeedsAsync(1, async (random) => {
    const { locked } = await meet(random, options);
    // They did meet.
    if (options.attach === "off") expect(locked).toBeGreaterThan(0);
  });
}

acrossTiers(describe, ["jsonl", "v2"] as const)("--store %s", (store) => {
  test("what several servers acknowledged is there, once, also where some are killed", () =>
    check({ ...SHORT, store, durability: "sync", kills: true }));

  // A socket is seen in one network only; the lock has to be one that the file carries.
  test("and where they share neither network nor state folder", needs(NETWORK_NAMESPACES), () =>
    check({ ...SHORT, store, durability: "os", kills: false, states: "different", namespaces: true }),
  );
});

test("and where whoever holds the session lets the others join", () => {
  const namespaces = OWN_NAMESPACES.length > 0;
  return check({ ...SHORT, store: "v2", attach: "auto", durability: "os", kills: true, states: "different", namespaces });
});
