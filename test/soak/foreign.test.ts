/** Files of other agents that were damaged at random: 10,000 of each format. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Failure } from "../../src/core/failure.ts";
import { findTranslator } from "../../src/modules/foreign/read/translators.ts";
import {
  damagedLines,
  diskWithForeign,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
} from "../modules/foreign/support/checks.ts";
import { damagedDatabase, gooseDatabase, opencodeDatabase, rustDatabase } from "../support/foreign/databases.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { GOOSE_SESSION, wholeGooseExport } from "../support/foreign/goose.ts";
import { OPENCODE_SESSION, wholeOpencodeExport } from "../support/foreign/opencode.ts";
import { headerText, id, userText } from "../support/lines.ts";
import { temporaryFolder } from "../support/server.ts";
import { soak } from "../support/soak.ts";

/** Databases, each with the path of a session in it. */
function wholeDatabases(): { format: string; whole: Uint8Array; path: string }[] {
  const folder = temporaryFolder();
  const making = { journal: "DELETE" } as const;
  const entries = Array.from({ length: 40 }, (_, n) => userText(id(n), n === 0 ? null : id(n - 1)));
  opencodeDatabase(join(folder, "opencode"), [wholeOpencodeExport()], making).close();
  gooseDatabase(join(folder, "goose"), [wholeGooseExport()], making).close();
  rustDatabase(join(folder, "pirust"), headerText(), entries, making).close();
  const paths = { opencode: `/x.db/${OPENCODE_SESSION}`, goose: `/x.db/${GOOSE_SESSION}`, pirust: "/x.db" };
  return Object.entries(paths).map(([format, path]) => ({ format, whole: readFileSync(join(folder, format)), path }));
}

/** Damaged files of each format in a unit. */
const FILES = 10;

let databases: ReturnType<typeof wholeDatabases> | undefined;

soak("foreign", async (random) => {
  const done = { damaged: 0, unrecognised: 0, records: 0, entries: 0, warnings: 0 };
  for (const { format, path, text, lines } of FORMATS) {
    const whole = text.trimEnd().split("\n");
    for (let opened = 0; opened < FILES; ) {
      const bytes = damagedLines(random, random.chance(0.3) ? whole : lines(random));
      if (!findTranslator(bytes, true)) {
        done.unrecognised++;
        continue;
      }
      opened++;
      try {
        const session = foreignSession(bytes, `/home/me/${path}`);
        requireSound(session, format === "omp");
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
  databases ??= wholeDatabases();
  for (const { format, whole, path } of databases) {
    for (let opened = 0; opened < FILES; opened++) {
      const disk = diskWithForeign(damagedDatabase(random, whole), "/x.db");
      try {
        requireSound(foreignSessionOn(disk, path));
      } catch (error) {
        if (error instanceof Failure || (error as Error).message === "the file is not recognised") done.unrecognised++;
        else throw Object.assign(error as Error, { message: `${format}: ${(error as Error).message}` });
      }
    }
    done.damaged += FILES;
  }
  return done;
});
