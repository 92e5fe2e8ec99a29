import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { FleetCare } from "../../core/ports/fleet-care.ts";
import { AddressError } from "../../storage/fleet/address.ts";
import { wholeId } from "../../storage/fleet/arrival.ts";
import { connectFleet } from "../../storage/fleet/connect.ts";
import { type KnownStore, notedStore } from "../../storage/fleet/identity.ts";
import { JOURNAL_FOLDER, Journal } from "../../storage/fleet/journal.ts";
import { SCHEMA_VERSION } from "../../storage/fleet/schema.ts";
import { readWhole } from "../../storage/fs/disk.ts";
import { absolute, findPaths } from "../../storage/fs/paths.ts";
import { realEnv } from "../../storage/system-env.ts";
import { VERSION } from "../../version.ts";
import { UsageError } from "../options.ts";
import { count, grouped, inert, sizeText } from "../terminal/text.ts";
import { type Asking, DAMAGE, FAILURE, OK, type Result, sentenceOf, type Verb } from "../verb.ts";
import { PRUNING_FLAGS, prunedBy, prunedLines } from "./fleet-prune.ts";
import { measuredBy, metricLines, others, statusLines } from "./fleet-status.ts";

/** Words about the database alone, and those that also need the sessions of this machine. */
const OF_DATABASE = ["status", "metrics", "migrate", "prune", "take"];
const OF_SESSIONS = ["verify", "import", "export", "push", "restore"];
const WORDS = [...OF_DATABASE, ...OF_SESSIONS];
/** Faults and files that are printed at most. */
const MOST_PRINTED = 50;

export default {
  name: "fleet",
  meaning: "look after the database that has the sessions, too: its tables, what it has, files in and out",
  operands: ["<word>", "[folder or id]"],
  flags: {
    "--older-than": { value: "time", meaning: "with prune: what was deleted before this time, by default 30d" },
    "--until": {
      value: "time",
      meaning: "with prune: deletes sessions that nobody has written to since, such as 90d",
    },
    "--archived": { meaning: "with prune --until: archived sessions, too" },
    "--unnamed": { meaning: "with prune --until: only sessions without a name" },
    "--apply": { meaning: "with prune: do it" },
    "--yes": { meaning: "with prune: do not ask before; required without a terminal" },
  },
  onInterrupt: "What was removed is gone; fleet prune goes on with the rest. Everything else can be run again.",
  more:
    "The word is status, metrics, migrate, prune, take, verify, import, export, push or restore. " +
    "The database is that of PI_FLEET_URL or --fleet; what is said of sessions is about those of the tenant in its URL, or " +
    "those that are in none. metrics prints figures of the database over all tenants, and of this machine, as Prometheus " +
    "reads them; it ends with 1 where the database does not answer. migrate makes the tables, and gathers anew what lists and searches lack; running servers may go on " +
    "meanwhile. prune shows what may be removed of sessions that were deleted longer than 30 days ago, or than --older-than says, and with " +
    "--apply removes it for good; their ids stay taken, and a machine that has one in its trash can restore it. With --until " +
    "it also deletes sessions that nobody has written to since and in which nothing is under way; restore brings them back until their rows go. " +
    "take <id> is the last resort where a turn runs, or hangs, on a machine that nobody reaches: any server can write to the " +
    "session at once. An idle session needs no take: others may write five seconds after its last write. verify reads every line of it against its hash chain, " +
    "and the copies on this machine against that; it ends with 3 where something is wrong. import brings in the sessions " +
    "of a folder and those in it, and changes no file; export writes all sessions into a folder, byte for byte, and " +
    "overwrites nothing. push gives it what was acknowledged here while it was away (--fleet-away journal), and ends with 0 only if nothing is left " +
    "that this machine alone has: run it before a container is thrown away. restore does the same after a backup of the database was restored, or a " +
    "standby promoted: what it has lost of this machine's sessions is given back, as it was or as branches.",
  async run(asking, given) {
    const { operands, flags } = given;
    const [word, operand] = operands;
    const folder = word === "take" ? undefined : operand;
    if (!WORDS.includes(word)) throw new UsageError(`fleet takes ${inWords(WORDS)}; it got ${word}.`);
    const needsFolder = word === "import" || word === "export";
    if (needsFolder && folder === undefined)
      throw new UsageError(`fleet ${word} needs a folder: fleet ${word} <folder>.`);
    if (word === "take" && operand === undefined) throw new UsageError("fleet take needs a session: fleet take <id>.");
    if (!needsFolder && folder !== undefined) throw new UsageError(`fleet ${word} takes no folder; it got ${folder}.`);
    const stray = PRUNING_FLAGS.find((name) => flags.has(name));
    if (word !== "prune" && stray !== undefined) throw new UsageError(`${stray} goes with fleet prune.`);
    const address = flags.get("--fleet");
    const text = address ?? asking.variables.PI_FLEET_URL;
    if (!text)
      throw new UsageError("There is no fleet. Put its URL into PI_FLEET_URL, such as postgres://user@host/database.");
    const readFile = (path: string): string => Buffer.from(readWhole(asking.disk, path)).toString("utf8");
    const { state } = findPaths(asking.variables, undefined, () => undefined);
    // A person makes tables where there are none any more, too.
    const storeAt =
      word === "migrate" ? undefined : (shown: string): KnownStore => notedStore(asking.disk, state, shown);
    const { fleet, catalog, keeper, pruning, shown, tenant } = connect(text, address !== undefined, {
      readFile,
      storeAt,
      search: asking.variables.PI_FLEET_SEARCH,
    });
    if (OF_SESSIONS.includes(word)) return { tenant, ...(await ofSessions(asking, word, operand)) };
    try {
      if (word === "take") {
        await fleet.requireTables();
        const sessionId = await wholeId(catalog, operand);
        return { address: shown, tenant, sessionId, holder: await keeper.takeAway(sessionId) };
      }
      const journal = new Journal(asking.disk, join(state, JOURNAL_FOLDER), () =>
        new Date(realEnv.now()).toISOString(),
      );
      if (word === "metrics") return { address: shown, ...(await measuredBy(fleet, asking, given, journal, state)) };
      if (word === "prune") {
        await fleet.requireTables();
        return { address: shown, tenant, ...(await prunedBy(pruning, asking, given, () => idsOwedBy(journal))) };
      }
      const migrated = word === "migrate" ? await fleet.migrate() : undefined;
      const indexed = migrated ? await careOf(asking).index(asking.progress) : undefined;
      const unkept = migrated?.unkept;
      const refused = (indexed?.unreadable.length ?? 0) + (unkept === undefined ? 0 : 1);
      const from = migrated ? { migratedFrom: migrated.before, ...indexed, refused, unkept } : {};
      const status = await fleet.status();
      const aside = status.schemaVersion === SCHEMA_VERSION ? await pruning.find({ rows: 0 }) : undefined;
      const { named, idleSessions, idle, idleBytes, idleNamed, idleArchived, ...left } = aside ?? {};
      return { address: shown, ...status, ...(aside ? { deleted: left } : {}), ...from };
    } finally {
      await fleet.close();
    }
  },
  *print(result, { operands: [word] }, page) {
    if (result.tenant) yield `Of the tenant ${inert(result.tenant)}:`;
    if (word === "verify") yield* verifiedLines(result);
    else if (word === "prune") yield* prunedLines(result, page);
    else if (word === "take") yield* takenLines(result);
    else if (word === "push" || word === "restore") yield* pushedLines(result);
    else if (word === "metrics") yield* metricLines(result, page);
    else yield* OF_SESSIONS.includes(word) ? fileLines(result, word) : statusLines(result);
  },
  isExact: ({ operands: [word] }) => word === "metrics",
  status: ({ faults = [], copies = [], lacking = [], refused = 0, incomplete = 0, kept = 0, away = null }) =>
    faults.length > 0 || lacking.length > 0 || copies.some(isWrong)
      ? DAMAGE
      : refused + incomplete + kept > 0 || away !== null
        ? FAILURE
        : OK,
} satisfies Verb;

/** Returns the sessions that hold what only this machine has, which a prune leaves alone. */
function idsOwedBy(journal: Journal): string[] {
  return journal.all().flatMap(({ sessionId, sessionPath, from, unreadable }) => {
    if (unreadable !== undefined)
      throw new Failure(
        "storage_failed",
        `${sessionPath} says of a session that only this machine has some of its entries, and cannot be read (${unreadable}). Nothing was removed. fleet push says what to do with it.`,
        { sessionPath },
        { retryable: false },
      );
    return from === null ? [] : [sessionId];
  });
}

function careOf({ service }: Asking): FleetCare {
  const { fleet } = service;
  if (fleet) return fleet;
  throw new UsageError("A server that only reads, or keeps sessions in memory, has no fleet. Leave that option out.");
}

/** Asks for what needs the sessions of this machine. */
async function ofSessions(asking: Asking, word: string, folder: string): Promise<Result> {
  const care = careOf(asking);
  if (word === "verify") return care.verify(asking.progress);
  if (word === "push" || word === "restore") {
    const sessions = await care.push(asking.progress);
    const { kept } = await asking.ask("list_kept", {});
    return { sessions, refused: sessions.filter(({ outcome }) => outcome === "refused").length, kept: kept.length };
  }
  const path = absolute(folder, asking.cwd);
  const files = await (word === "import"
    ? care.importFolder(path, asking.progress)
    : care.exportTo(path, asking.progress));
  const refused = files.filter(({ outcome }) => outcome === "refused").length;
  return { folder: path, files, refused, incomplete: files.filter((file) => file.missingAttachments).length };
}

function* takenLines({ sessionId, holder }: Result): Generator<string> {
  if (holder === null) yield `Nobody has ${inert(sessionId)}; any server can write to it.`;
  else {
    yield `Taken from ${inert(holder.client)} on ${inert(holder.host)}. Whoever writes to it next has it: open it there and write.`;
    yield "What that process writes after somebody else is refused and kept aside; recover lists it, on its machine.";
  }
}

/** The place of rows of which nobody knows the session. */
const SESSIONS = "the table of sessions";

/** Returns the line about one of what a result has a sentence for. */
function toldLine(which: string, found: Result): string {
  return `${inert(which)}: ${inert(sentenceOf(found))}`;
}

function isWrong({ state }: Result): boolean {
  return state === "different" || state === "unreadable";
}

/** Sentences for the states of copies. */
const STATES: Readonly<Record<string, string>> = {
  different:
    "other entries than the fleet's; open it by its id, and the fleet's take their place. What the copy owes becomes a branch, and a copy without a common entry is another session's and stays as it is",
  unreadable: "cannot be read; verify says more",
  ahead: "more entries than the fleet has; the next write gives it these",
  behind: "fewer entries than the fleet has; opening it brings the rest",
  deleted: "deleted from the fleet",
  only_here: "not in the fleet; the next write, or fleet import, brings it there",
};

function* pushedLines({ sessions, refused, kept }: Result): Generator<string> {
  if (sessions.length === 0)
    yield "Nothing is noted here that the fleet lacks; fleet verify compares the copies with it";
  else yield `${count(sessions.length - refused, "session was", "sessions were")} given to the fleet`;
  for (const pushed of sessions) {
    const { sessionPath, outcome } = pushed;
    if (outcome === "branched")
      yield `${inert(sessionPath)}: others had written to it, and what was written here is a branch of it now`;
    if (outcome === "refused") yield toldLine(sessionPath, pushed);
  }
  if (kept > 0)
    yield `${count(kept, "file", "files")} of entries that the fleet refused before, which only this machine has: recover lists and appends them; then remove them`;
}

function* journalLines(journal: Result): Generator<string> {
  const owed = journal.filter(({ from }: Result) => from !== null);
  if (owed.length > 0)
    yield `${count(owed.length, "session has", "sessions have")} entries that only this machine has, because the database was away: fleet push gives them to it`;
  for (const { sessionPath, conflicts } of journal)
    for (const { at, entries, lastEntryId } of conflicts)
      yield `${inert(sessionPath)}: others wrote to it while the database was away; the ${count(entries, "entry", "entries")} of this machine are a branch since ${inert(at)}, which ends with ${inert(lastEntryId)}`;
}

function* lackingLines(lacking: Result): Generator<string> {
  if (lacking.length === 0) return;
  yield `${count(lacking.length, "session lacks", "sessions lack")} entries in the database that were acknowledged here: fleet restore gives them back`;
  for (const { sessionId, entries, at } of lacking.slice(0, MOST_PRINTED))
    yield `  ${inert(sessionId)}: ${entries === null ? "some entries" : count(entries, "entry", "entries")}; the last entry of the session was acknowledged at ${inert(at)}`;
}

function* verifiedLines({
  sessions,
  deleted,
  entries,
  bytes,
  faults,
  copies,
  lacking,
  journal,
  tenant,
}: Result): Generator<string> {
  const aside = deleted > 0 ? `, ${grouped(deleted)} of them deleted,` : "";
  yield `${count(sessions, "session", "sessions")}${aside} with ${count(entries, "entry", "entries")}, ${sizeText(bytes)}, read and compared with their hash chains${others(tenant)}`;
  for (const fault of faults.slice(0, MOST_PRINTED)) yield toldLine(fault.sessionId ?? SESSIONS, fault);
  if (faults.length > 0) yield `${count(faults.length, "fault", "faults")} in the database`;
  yield* lackingLines(lacking);
  if (faults.length + lacking.length === 0) yield "The database has what was acknowledged on this machine";
  const same = copies.filter(({ state }: Result) => state === "same").length;
  yield `${count(same, "copy", "copies")} here with the same entries`;
  for (const [state, meaning] of Object.entries(STATES)) {
    const found = copies.filter((copy: Result) => copy.state === state);
    if (found.length > 0) yield `${count(found.length, "copy", "copies")}: ${meaning}`;
    for (const { sessionPath } of isWrong({ state }) ? found.slice(0, MOST_PRINTED) : [])
      yield `  ${inert(sessionPath)}`;
  }
  yield* journalLines(journal);
}

function* fileLines({ folder, files, refused, incomplete, tenant }: Result, word: string): Generator<string> {
  const of = (outcome: string): number => files.filter((file: Result) => file.outcome === outcome).length;
  const [did, place] = word === "import" ? ["brought in from", "the fleet"] : ["written into", "the folder"];
  yield `${count(of("new") + of("continued"), "session", "sessions")} ${did} ${inert(folder)}; ${grouped(of("known"))} were in ${place} already${word === "export" ? others(tenant) : ""}`;
  const told = files.filter(({ message }: Result) => message !== undefined);
  for (const file of told.slice(0, MOST_PRINTED)) yield toldLine(file.sessionPath, file);
  if (refused > 0) yield `${count(refused, "session was", "sessions were")} left out`;
  if (incomplete > 0) yield `${count(incomplete, "session lacks", "sessions lack")} attachments`;
}

function inWords(words: readonly string[]): string {
  return `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/** Connects for one question. Throws UsageError where the address is wrong. */
function connect(
  text: string,
  isSeen: boolean,
  given: Pick<Parameters<typeof connectFleet>[1], "readFile" | "storeAt" | "search">,
): ReturnType<typeof connectFleet> {
  const since = new Date(realEnv.now()).toISOString();
  try {
    return connectFleet(
      text,
      { client: `pi-session-server ${VERSION}`, processId: realEnv.sessionId(), since, ...given },
      isSeen,
    );
  } catch (error) {
    if (error instanceof AddressError) throw new UsageError(error.message);
    throw error instanceof Failure ? error : new Failure("storage_failed", (error as Error).message);
  }
}
