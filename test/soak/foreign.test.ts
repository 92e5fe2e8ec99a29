/** Files of other agents that were damaged at random: 10,000 of each format. */

import { translatorOf } from "../../src/core/foreign/translators.ts";
import { damagedLines, fidelityOf, foreignSession, requireSound } from "../support/foreign/checks.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { soak } from "../support/soak.ts";

/** Damaged files of each format in a unit. */
const FILES = 10;

soak("foreign", async (random) => {
  const done = { damaged: 0, unrecognised: 0, records: 0, entries: 0, warnings: 0 };
  for (const { format, path, text, lines } of FORMATS) {
    const whole = text.trimEnd().split("\n");
    for (let opened = 0; opened < FILES; ) {
      const bytes = damagedLines(random, random.chance(0.3) ? whole : lines(random));
      if (!translatorOf(bytes, true)) {
        done.unrecognised++;
        continue;
      }
      opened++;
      try {
        const session = foreignSession(bytes, `/home/me/${path}`);
        requireSound(session);
        const { records, warnings } = fidelityOf(session.log);
        done.records += records;
        done.entries += session.log.nodes.count;
        done.warnings += warnings.length;
        session.close();
      } catch (error) {
        if (error instanceof Error) error.message = `${format}: ${error.message}`;
        throw error;
      }
    }
    done.damaged += FILES;
  }
  return done;
});
