/** The typed client and a server that is killed every few hundred writes, on both stores. */

import { soak } from "../support/soak.ts";
import { survivingClient, writesUnderKills } from "../support/survival.ts";

soak("survival", async (random, number) => {
  const client = await survivingClient(number % 2 === 0 ? "jsonl" : "v2");
  try {
    const { misplaced, ...figures } = await writesUnderKills(client, 10_000, random);
    if (figures.lost + figures.doubled + misplaced > 0) throw new Error(JSON.stringify({ ...figures, misplaced }));
    return figures;
  } finally {
    await client.close();
  }
});
