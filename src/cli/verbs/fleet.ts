import { modules } from "../../compose.ts";
import { Failure } from "../../core/failure.ts";
import type { JournaledSession } from "../../core/ports/fleet.ts";
import type {
  CheckedCopy,
  FleetAdmin,
  FleetFile,
  FleetIndexed,
  FleetVerified,
  SessionLoss,
} from "../../core/ports/fleet-admin.ts";
import type { FleetDatabase } from "../../core/ports/fleet-database.ts";
import { getIdInPath } from "../../core/search/listing.ts";
import { AddressError, NO_FLEET } from "../../storage/fleet-module.ts";
import { findPaths, toAbsolutePath } from "../../storage/fs/paths.ts";
import { realEnv } from "../../storage/system-env.ts";
import { VERSION } from "../../version.ts";
import { requireYes } from "../confirmed.ts";
import { UsageError } from "../options.ts";
import { findRecordedSession } from "../sessions.ts";
import { count, formatSize, group, show } from "../terminal/text.ts";
import {
  DAMAGE,
  defineVerb,
  FAILURE,
  OK,
  toSentence,
  type Verb,
  type VerbArguments,
  type VerbContext,
} from "../verb.ts";
import { formatPruned, PRUNING_FLAGS, pruneFleet } from "./fleet-prune.ts";
import { describeOthers, formatFleetStatus, formatMetrics, type ShownStatus } from "./fleet-status.ts";

/** Faults and files that are printed at most. */
const MOST_PRINTED = 50;
/** The sentence for an interrupt in the middle of something that a second run finishes. */
const RUN_AGAIN = "Nothing is lost; the same command goes on.";

/** Connects for one question, and ends the connection after the answer. Throws UsageError where the address is wrong. */
async function withFleet<Found>(
  asking: VerbContext,
  { flags }: VerbArguments,
  ask: (database: FleetDatabase) => Promise<Found>,
  makesTables = false,
): Promise<Found> {
  const address = flags.get("--fleet");
  const text = address ?? asking.variables.PI_FLEET_URL;
  if (!text)
    throw new UsageError("There is no fleet. Put its URL into PI_FLEET_URL, such as postgres://user@host/database.");
  if (!modules.fleet) throw new UsageError(NO_FLEET);
  const { state: stateFolder } = findPaths(asking.variables, undefined, () => undefined);
  let database: FleetDatabase;
  try {
    database = modules.fleet.openFleetDatabase(
      // A person may create tables again after they were lost.
      { text, isSeen: address !== undefined, mayBeAnother: makesTables, search: asking.variables.PI_FLEET_SEARCH },
      { disk: asking.disk, env: realEnv, stateFolder, client: `pi-session-server ${VERSION}` },
    );
  } catch (error) {
    if (error instanceof AddressError) throw new UsageError(error.message);
    throw error instanceof Failure ? error : new Failure("storage_failed", (error as Error).message);
  }
  try {
    return await ask(database);
  } finally {
    await database.close();
  }
}

/** An answer that is about the sessions of a tenant, or of none. */
type OfTenant<Found> = Found & { readonly tenant: string };

/** Does the same for verbs that need the sessions of this machine. */
function withAdmin<Found extends object>(
  asking: VerbContext,
  given: VerbArguments,
  ask: (admin: FleetAdmin) => Promise<Found>,
) {
  return withFleet(asking, given, async ({ tenant }) => ({ tenant, ...(await ask(getFleetAdmin(asking))) }));
}

function getFleetAdmin({ service }: VerbContext): FleetAdmin {
  const { fleet } = service;
  if (fleet) return fleet;
  throw new UsageError("A server with --read-only or --no-session has no fleet. Leave that option out.");
}

/** Yields the name of the tenant that an answer is about. */
function* tenantLine({ tenant }: { readonly tenant: string }): Generator<string> {
  if (tenant) yield show`Of the tenant ${tenant}:`;
}

const status = defineVerb({
  name: "fleet status",
  meaning: "show the database: its tables, sizes and writers",
  operands: [],
  more: "The figures are those of the tenant in the URL, or of the sessions that are in no tenant. The exit status is 1 where the tables are missing.",
  run: (asking, given) => withFleet(asking, given, readStatus),
  *print(result) {
    yield* tenantLine(result);
    yield* formatFleetStatus(result);
  },
  status: ({ schemaVersion }) => (schemaVersion === 0 ? FAILURE : OK),
});

async function readStatus(database: FleetDatabase): Promise<ShownStatus> {
  return { address: database.shown, ...(await database.status()) };
}

const metrics = defineVerb({
  name: "fleet metrics",
  meaning: "print figures of the database and of this machine as Prometheus reads them",
  operands: [],
  more: "The figures are over all tenants. The exit status is 1 where the database does not answer.",
  run: (asking, given) =>
    withFleet(asking, given, async (database) => {
      const measured = await database.metrics(asking.page().now);
      if (measured.away !== null && !given.flags.has("--json")) asking.say(measured.away);
      return { address: database.shown, ...measured };
    }),
  print: (result, _given, page) => formatMetrics(result, page),
  isExact: () => true,
  status: ({ away }) => (away === null ? OK : FAILURE),
});

const NOTHING_INDEXED: FleetIndexed = { indexed: 0, inUse: [], unreadable: [] };

const migrate = defineVerb({
  name: "fleet migrate",
  meaning: "make or upgrade the tables, and add the facts that lists and searches lack",
  operands: [],
  flags: {
    "--yes": { meaning: "do not ask before making tables where this machine knows another store" },
  },
  more: "Running servers may go on meanwhile. After an upgrade those of the former program write nothing more.",
  onInterrupt: RUN_AGAIN,
  run: (asking, given) =>
    withFleet(
      asking,
      given,
      async (database) => {
        const { before } = await database.migrate(async ({ store, remedy }) => {
          if (!given.flags.has("--yes")) await mayBeginAnew(asking, store, remedy);
        });
        // New tables have no sessions, and servers that knew another database here refuse this one until a person lets them.
        const indexed = before === 0 ? NOTHING_INDEXED : await getFleetAdmin(asking).index(asking.progress);
        const refused = indexed.unreadable.length;
        return { ...(await readStatus(database)), migratedFrom: before, ...indexed, refused };
      },
      true,
    ),
  *print(result) {
    yield* tenantLine(result);
    yield* formatFleetStatus(result);
  },
  status: ({ refused }) => (refused > 0 ? FAILURE : OK),
});

/** Asks before an empty database gets tables at the address of another store. Throws UsageError, and cancelled. */
function mayBeginAnew(asking: VerbContext, store: string, remedy: string): Promise<void> {
  const event = `The database at this address is empty, and this machine's sessions are in another store (${store}). New tables are a new fleet without these sessions, which servers refuse until you ${remedy}.`;
  return requireYes(asking, `${event}\nMake new tables?`, {
    alone: `${event} Nothing was made. Restore a backup instead, as docs/fleet.md says, or use --yes.`,
    refused: "Nothing was made.",
  });
}

const prune = defineVerb({
  name: "fleet prune",
  meaning: "show what the database keeps of deleted sessions, and remove it",
  operands: [],
  flags: PRUNING_FLAGS,
  more:
    "With --apply, sessions that were deleted longer than 30 days ago are removed for good; their ids stay taken, and a " +
    "machine that has one in its trash can restore it. --until also deletes sessions that are not in use and have had no " +
    "write since; restore brings them back until their rows go.\n" +
    "  pi-session-server fleet prune --apply\n" +
    "  pi-session-server fleet prune --until 90d --unnamed --apply",
  onInterrupt: "The removed sessions are gone; fleet prune goes on with the rest.",
  run: (asking, given) =>
    withFleet(asking, given, async (database) => {
      await database.requireTables();
      const { shown, tenant } = database;
      return { address: shown, tenant, ...(await pruneFleet(database, asking, given)) };
    }),
  *print(result, _given, page) {
    yield* tenantLine(result);
    yield* formatPruned(result, page);
  },
});

const take = defineVerb({
  name: "fleet take",
  meaning: "take a session from a machine that cannot be reached",
  operands: ["<session>"],
  more:
    "It is the last resort where a turn runs, or hangs, on such a machine: any server can write to the session at once. An " +
    "idle session needs no take: others may write five seconds after its last write.\n" +
    "  pi-session-server fleet take 01991f6e",
  run: (asking, given) =>
    withFleet(asking, given, async (database) => {
      const { shown, tenant } = database;
      const [operand] = given.operands;
      const where = await findRecordedSession(asking, operand);
      const id = "sessionId" in where ? where.sessionId : getIdInPath(operand);
      return { address: shown, tenant, ...(await database.takeAway(id)) };
    }),
  *print(result) {
    const { sessionId, holder } = result;
    yield* tenantLine(result);
    if (holder === null) yield show`No server has ${sessionId}; any of them can write to it.`;
    else {
      yield show`Taken from ${holder.client} on ${holder.host}. The next server that writes to it has it: open it there and write.`;
      yield "Once another server has written, the entries of that process are refused and kept; recover lists them on its machine.";
    }
  },
});

const verify = defineVerb({
  name: "fleet verify",
  meaning: "read every line of the database against its hash chain, and compare the copies on this machine",
  operands: [],
  more: "Nothing is changed. The exit status is 3 where something is wrong.",
  run: (asking, given) => withAdmin(asking, given, (admin) => admin.verify(asking.progress)),
  print: (result) => [...tenantLine(result), ...verifiedLines(result)],
  status: ({ faults, copies, lacking }) =>
    faults.length > 0 || lacking.length > 0 || copies.some(isWrong) ? DAMAGE : OK,
});

const fleetImport = defineVerb<OfTenant<FleetFiles>>({
  name: "fleet import",
  meaning: "bring the sessions of a folder and its subfolders into the database",
  operands: ["<folder>"],
  more: "It changes no file.\n  pi-session-server fleet import ./sessions",
  onInterrupt: RUN_AGAIN,
  run: (asking, given) => withAdmin(asking, given, (admin) => ofFiles(asking, given, admin.importFolder.bind(admin))),
  print: (result) => [...tenantLine(result), ...fileLines(result, "brought in from", "the fleet")],
  status: ofRefused,
});

const fleetExport = defineVerb<OfTenant<FleetFiles>>({
  name: "fleet export",
  meaning: "write all sessions of the database into a folder, byte for byte",
  operands: ["<folder>"],
  more: "It overwrites nothing.\n  pi-session-server fleet export ./backup",
  onInterrupt: RUN_AGAIN,
  run: (asking, given) => withAdmin(asking, given, (admin) => ofFiles(asking, given, admin.exportTo.bind(admin))),
  print: (result) => [
    ...tenantLine(result),
    ...fileLines(result, "written into", "the folder", describeOthers(result.tenant)),
  ],
  status: ofRefused,
});

const push = makePushVerb("push", {
  meaning: "give the database what only this machine has",
  more:
    "It compares each session here with the database, gives it what that lacks, in order or as a branch, and waits up to 35 s for " +
    "a writer that may have ended. Run it before a container is thrown away: the exit status is 0 only if nothing is left that " +
    "this machine alone has. Sessions that the database never had are named; fleet import brings them there.",
});

const restore = makePushVerb("restore", {
  meaning: "upload again the entries of this machine that the database has lost",
  more:
    "Run it after a backup of the database was restored, or a standby promoted. Entries come back as they were or, where " +
    "others have written since, as branches. The exit status is 0 only if the database lacks nothing. After a loss of the state " +
    "folder, sessions without a record here that the database does not have are named: fleet import brings them there.",
});

function makePushVerb(word: "push" | "restore", texts: Pick<Verb, "meaning" | "more">) {
  return defineVerb({
    ...texts,
    name: `fleet ${word}`,
    operands: [],
    onInterrupt: RUN_AGAIN,
    run: (asking, given) =>
      withAdmin(asking, given, async (admin) => {
        const sessions = await admin.push(asking.progress);
        const { kept } = await asking.ask("list_kept", {});
        return { sessions, refused: sessions.filter(({ outcome }) => outcome === "refused").length, kept: kept.length };
      }),
    *print(result) {
      const { sessions, refused, kept } = result;
      yield* tenantLine(result);
      if (sessions.length === 0) yield "The fleet has all entries of the sessions on this machine";
      else yield `${count(sessions.length - refused, "session was", "sessions were")} given to the fleet`;
      const problems = sessions.filter(({ outcome }) => outcome !== "given");
      for (const pushed of problems.slice(0, MOST_PRINTED)) {
        const { sessionPath, outcome, message = "" } = pushed;
        if (outcome === "branched")
          yield show`${sessionPath}: others had written to it, and the entries of this machine are a branch of it now`;
        if (outcome === "refused") yield formatProblem(sessionPath, { ...pushed, message });
      }
      if (problems.length > MOST_PRINTED)
        yield `and ${count(problems.length - MOST_PRINTED, "more session", "more sessions")}`;
      if (kept > 0)
        yield `${count(kept, "file", "files")} of entries that the fleet refused before, which only this machine has: recover lists and appends them`;
    },
    status: ({ refused, kept }) => (refused + kept > 0 ? FAILURE : OK),
  });
}

const words: readonly Verb[] = [
  ...[status, metrics, migrate, prune, take],
  ...[verify, fleetImport, fleetExport, push, restore],
];

export default defineVerb({
  name: "fleet",
  meaning: "look after the database that has the sessions, too: its tables, sizes, files in and out",
  operands: ["<word>", "[folder or id]"],
  subverbs: words,
  more: "The database is that of PI_FLEET_URL or --fleet. fleet <word> --help says more.",
  run: async (_asking, { operands: [word] }): Promise<never> => {
    const names = words.map(({ name }) => name.slice("fleet ".length));
    throw new UsageError(`fleet takes ${names.slice(0, -1).join(", ")} or ${names.at(-1)}; it got ${word}.`);
  },
  print: () => [],
});

// --- lines -----------------------------------------------------------------------------------------------------------

/** Name for damaged rows of unknown sessions. */
const SESSIONS = "the table of sessions";

/** Returns the line about a part of a result with a sentence. */
function formatProblem(which: string, found: { readonly message: string }): string {
  return show`${which}: ${toSentence(found)}`;
}

function isWrong({ state }: Pick<CheckedCopy, "state">): boolean {
  return state === "different" || state === "unreadable";
}

/** Sentences for the states of copies. */
const STATES: Readonly<Partial<Record<CheckedCopy["state"], string>>> = {
  different:
    "another header or other entries than the fleet's; open it by its id and write to it, and the fleet's take their place. Entries that only the copy has become a branch; a copy without a common entry belongs to another session and stays as it is",
  unreadable: "cannot be read; verify says more",
  ahead: "more entries than the fleet has; the next write, or fleet push, uploads them",
  behind: "fewer entries than the fleet has; opening it brings the rest",
  deleted: "deleted from the fleet",
  only_here: "not in the fleet; the next write, or fleet import, brings it there",
};

function* journalLines(journal: readonly JournaledSession[]): Generator<string> {
  const pending = journal.filter(({ from }) => from !== null);
  if (pending.length > 0)
    yield `${count(pending.length, "session has", "sessions have")} entries that only this machine has, because the database was away: fleet push uploads them`;
  for (const { sessionPath, conflicts } of journal)
    for (const { at, entries, lastEntryId } of conflicts)
      yield show`${sessionPath}: others wrote to it while the database was away; the ${count(entries, "entry", "entries")} of this machine are a branch since ${at}, which ends with ${lastEntryId}`;
}

function* lackingLines(lacking: readonly SessionLoss[]): Generator<string> {
  if (lacking.length === 0) return;
  yield `${count(lacking.length, "session lacks", "sessions lack")} entries in the database that were acknowledged here: fleet restore uploads them again`;
  for (const { sessionId, entries, isLeast, at } of lacking.slice(0, MOST_PRINTED))
    yield show`  ${sessionId}: ${entries === null ? "an unknown number of entries" : `${isLeast ? "at least " : ""}${count(entries, "entry", "entries")}`}; the last entry of the session was acknowledged at ${at}`;
}

function* verifiedLines(verified: OfTenant<FleetVerified>): Generator<string> {
  const { sessions, deleted, entries, bytes, faults, copies, lacking, journal, tenant } = verified;
  const deletedPart = deleted > 0 ? `, ${group(deleted)} of them deleted,` : "";
  yield `${count(sessions, "session", "sessions")}${deletedPart} with ${count(entries, "entry", "entries")}, ${formatSize(bytes)}, read and compared with their hash chains${describeOthers(tenant)}`;
  for (const fault of faults.slice(0, MOST_PRINTED)) yield formatProblem(fault.sessionId ?? SESSIONS, fault);
  if (faults.length > 0) yield `${count(faults.length, "fault", "faults")} in the database`;
  yield* lackingLines(lacking);
  if (faults.length + lacking.length === 0)
    yield "The database has every entry that was acknowledged on this machine, as far as the records of this machine go";
  const same = copies.filter(({ state }) => state === "same").length;
  yield `${count(same, "copy", "copies")} here with the same entries`;
  for (const [state, meaning] of Object.entries(STATES)) {
    const found = copies.filter((copy) => copy.state === state);
    if (found.length > 0) yield `${count(found.length, "copy", "copies")}: ${meaning}`;
    for (const { sessionPath } of found.filter(isWrong).slice(0, MOST_PRINTED)) yield show`  ${sessionPath}`;
  }
  yield* journalLines(journal);
}

/** The files that were brought in or written out, and how many were not, or not whole. */
interface FleetFiles {
  readonly folder: string;
  readonly files: readonly FleetFile[];
  readonly refused: number;
  readonly incomplete: number;
}

async function ofFiles(
  asking: VerbContext,
  { operands: [folder] }: VerbArguments,
  run: (folder: string, progress: VerbContext["progress"]) => Promise<readonly FleetFile[]>,
): Promise<FleetFiles> {
  const path = toAbsolutePath(folder, asking.cwd);
  const files = await run(path, asking.progress);
  const refused = files.filter(({ outcome }) => outcome === "refused").length;
  return { folder: path, files, refused, incomplete: files.filter((file) => file.missingAttachments).length };
}

function ofRefused({ refused, incomplete }: FleetFiles): number {
  return refused + incomplete > 0 ? FAILURE : OK;
}

function* fileLines(result: FleetFiles, did: string, place: string, more = ""): Generator<string> {
  const { folder, files, refused, incomplete } = result;
  const of = (outcome: FleetFile["outcome"]): number => files.filter((file) => file.outcome === outcome).length;
  yield show`${count(of("new") + of("continued"), "session", "sessions")} ${did} ${folder}; ${group(of("known"))} were in ${place} already${more}`;
  const problems = files.flatMap((file) => (file.message === undefined ? [] : [{ ...file, message: file.message }]));
  for (const file of problems.slice(0, MOST_PRINTED)) yield formatProblem(file.sessionPath, file);
  if (refused > 0) yield `${count(refused, "session was", "sessions were")} left out`;
  if (incomplete > 0) yield `${count(incomplete, "session lacks", "sessions lack")} attachments`;
}
