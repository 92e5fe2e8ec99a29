import { Failure } from "../../core/failure.ts";
import { AddressError } from "../../storage/fleet/address.ts";
import { connectFleet } from "../../storage/fleet/connect.ts";
import { readWhole } from "../../storage/fs/disk.ts";
import { realEnv } from "../../storage/system-env.ts";
import { VERSION } from "../../version.ts";
import { UsageError } from "../options.ts";
import { grouped, inert, sizeText } from "../terminal/text.ts";
import type { Verb } from "../verb.ts";

const WORDS = ["status", "migrate"];

export default {
  name: "fleet",
  meaning: "look at the database that has the sessions, too, or make its tables",
  operands: ["<status|migrate>"],
  more:
    "The database is that of PI_FLEET_URL or --fleet. migrate makes the tables, or brings them to the version of this " +
    "program; running servers may go on meanwhile.",
  async run({ variables, disk }, { operands: [word], flags }) {
    if (!WORDS.includes(word)) throw new UsageError(`fleet takes ${WORDS.join(" or ")}; it got ${word}.`);
    const given = flags.get("--fleet");
    const text = given ?? variables.PI_FLEET_URL;
    if (!text)
      throw new UsageError("There is no fleet. Put its URL into PI_FLEET_URL, such as postgres://user@host/database.");
    const { fleet, shown } = connect(text, given !== undefined, (path) =>
      Buffer.from(readWhole(disk, path)).toString("utf8"),
    );
    try {
      const migrated = word === "migrate" ? await fleet.migrate() : undefined;
      return { address: shown, ...(await fleet.status()), ...(migrated ? { migratedFrom: migrated.before } : {}) };
    } finally {
      await fleet.close();
    }
  },
  *print({ address, server, durability, schemaVersion, migratedFrom, ...sums }) {
    yield `${inert(address)}: ${inert(server)}`;
    if (schemaVersion === 0) {
      yield "It has no tables yet: pi-session-server fleet migrate makes them.";
      return;
    }
    const isNew = migratedFrom !== undefined && migratedFrom !== schemaVersion;
    yield `Tables of version ${schemaVersion}${isNew ? (migratedFrom === 0 ? ", made just now" : `, before ${migratedFrom}`) : ""}`;
    yield durability === "replicated"
      ? "Commits are on a second machine before they are acknowledged"
      : "Commits are on the database's own disk before they are acknowledged, and on no second machine";
    yield `${grouped(sums.sessions)} sessions with ${grouped(sums.entries)} entries, ${sizeText(sums.bytes)}; ${sizeText(sums.storedBytes)} in the database`;
    yield `${grouped(sums.held)} of them have a writer now`;
  },
} satisfies Verb;

/** Connects for one question. Throws UsageError where the address is wrong. */
function connect(text: string, isSeen: boolean, readFile: (path: string) => string): ReturnType<typeof connectFleet> {
  const since = new Date(realEnv.now()).toISOString();
  try {
    return connectFleet(
      text,
      { client: `pi-session-server ${VERSION}`, processId: realEnv.sessionId(), since, readFile },
      isSeen,
    );
  } catch (error) {
    if (error instanceof AddressError) throw new UsageError(error.message);
    throw error instanceof Failure ? error : new Failure("storage_failed", (error as Error).message);
  }
}
