import { quoteWord } from "../../core/export/resumable.ts";
import { requireYes } from "../confirmed.ts";
import { UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, cutTo, escapeLine, formatAge, formatSize, group, shortenPath, show, wrapOn } from "../terminal/text.ts";
import { DAMAGE, defineVerb, OK, type ResultOf } from "../verb.ts";
import { rewordAsVerbs } from "../wording.ts";

/** The health of this machine and its sessions, and the repairs. */
type Diagnosis = ResultOf<"get_health"> & Partial<ResultOf<"fix_health">>;

/** Rows of a list that are printed unless all are asked for. */
const MOST_ROWS = 10;
/** Free bytes below which a disk is called full. */
const LEAST_FREE = 1 << 20;
/** Columns of a number of sessions. */
const COUNT = 5;
/** Columns of the labels. */
const LABEL = 12;

export const doctor = defineVerb({
  name: "doctor",
  meaning: "look at this machine and all sessions, and report faults",
  operands: [],
  flags: {
    "--fix": { meaning: "list what can be repaired safely, ask, and repair it; no session is touched" },
    "--dry-run": { meaning: "with --fix: only list it" },
    "--yes": { meaning: "with --fix: do not ask; required without a terminal" },
    "--all": { meaning: `print every row instead of the first ${MOST_ROWS} of a list` },
  },
  more: "It opens every session without reading its messages; verify --all reads every byte. The exit status is 3 if a session or the catalog is damaged, or an operation was interrupted.",
  async run({ ask, confirm }, { flags }) {
    if (!flags.has("--fix")) {
      for (const name of ["--yes", "--dry-run"])
        if (flags.has(name)) throw new UsageError(`${name} goes with --fix. Give both.`);
      return ask("get_health");
    }
    const health = await ask("get_health");
    if (health.fixes.length === 0 || flags.has("--dry-run")) return health;
    if (!flags.has("--yes")) {
      const list = health.fixes.map(({ text, path }) => show`  ${text} ${path}\n`).join("");
      await requireYes({ confirm }, `${list}Do this?`, {
        alone: "doctor --fix asks first, and there is no terminal to ask on; use --yes, or --dry-run.",
        refused: "Nothing was changed.",
      });
    }
    const { fixed, failed } = await ask("fix_health");
    return { ...(await ask("get_health")), fixed, failed };
  },
  print: (health, { flags }, page) => report(health, flags.has("--all") ? Number.POSITIVE_INFINITY : MOST_ROWS, page),
  status: ({ ok }) => (ok ? OK : DAMAGE),
});

function* report(health: Diagnosis, most: number, page: OutputStyle): Generator<string> {
  yield* facts(health, page);
  yield* damagedLines(health.damaged, most, page);
  yield* sameIdLines(health.sameIds, most, page);
  yield* hiddenLines(health.hidden, most, page);
  yield* formatUnreadFiles(health.notRead, page, most);
  yield* lockLines(health.locks, most, page);
  yield* leftoverLines(health, page);
  yield* exposedLines(health.exposed, most, page);
  yield* fixLines(health, page);
  yield "";
  yield health.ok ? page.paint("green", "No damage was found.") : page.paint("red", "Damage was found.");
}

/** Returns the lines of a fact: its label, in so many columns, and texts below each other. */
export function formatFact(label: string, texts: readonly string[], page: OutputStyle, columns = LABEL): string[] {
  return texts
    .flatMap((text) => wrapOn(page, text, columns))
    .map((text, i) => `${page.paint("dim", (i === 0 ? label : "").padEnd(columns))}${text}`);
}

function* facts(health: ResultOf<"get_health">, page: OutputStyle): Generator<string> {
  const { server, node, roots, counts, catalog, fleet, space, stateFolder } = health;
  yield* formatFact("Program", [show`${server.name} ${server.version}`], page);
  yield* formatFact(
    "Node",
    [node.supported ? show`${node.version}` : show`${node.version}: use ${node.required} or newer`],
    page,
  );
  yield* formatFact(
    "Folders",
    roots.map((root) => rootText(root, page)),
    page,
  );
  yield* formatFact("State", [shortenPath(stateFolder, page.home)], page);
  yield* formatFact("Sessions", countTexts(counts), page);
  yield* formatFact("Catalog", [catalogText(catalog)], page);
  if (fleet) yield* formatFact("Fleet", fleetTexts(fleet), page);
  if (space) yield* formatFact("Disk", spaceTexts(space), page);
}

function spaceTexts({ freeBytes, totalBytes }: NonNullable<Diagnosis["space"]>): string[] {
  const free = `${formatSize(freeBytes)} of ${formatSize(totalBytes)} free`;
  return freeBytes >= LEAST_FREE
    ? [free]
    : [free, "it is full: changes fail, or nothing is recorded of them; make room"];
}

const AGENTS: Readonly<Record<string, string>> = { pi: "Pi", pi_agent_rust: "pi_agent_rust" };

function agentsText(agents: readonly string[]): string {
  return agents.map((agent) => AGENTS[agent] ?? show`${agent}`).join(" and ");
}

function rootText(
  { path, agents, exists, inUse, hasRustIndex }: Diagnosis["roots"][number],
  { home }: OutputStyle,
): string {
  const of = agents.length === 0 ? [] : [`of ${agentsText(agents)}`];
  const notes = [...of, ...(exists ? [] : ["missing"]), ...(inUse ? [] : ["not used here"])];
  const index = hasRustIndex ? ["with the index of pi_agent_rust"] : [];
  return `${shortenPath(path, home)} (${[...notes, ...index].join(", ") || "used here"})`;
}

function countTexts({ sessions, archived, trashed, containers, forks, databases }: Diagnosis["counts"]): string[] {
  const more = [
    `${group(archived)} archived`,
    `${group(trashed)} in the trash`,
    count(forks, "fork", "forks"),
    `${group(containers)} in Session Store V2`,
  ];
  return [
    `${group(sessions)}; ${more.join(", ")}`,
    ...(databases === 0
      ? []
      : [`${count(databases, "database", "databases")} of pi_agent_rust, which migrate takes in`]),
  ];
}

function fleetTexts({ away, owed, lacking, unrecorded, kept }: NonNullable<Diagnosis["fleet"]>): string[] {
  return [
    away === null ? "its database answers" : show`${away}`,
    ...(owed === 0
      ? []
      : [`${count(owed, "session has", "sessions have")} entries that only this machine has; fleet push uploads them`]),
    ...(lacking === null && away === null
      ? ["it could not be asked whether it lacks entries that were acknowledged here; fleet verify says why"]
      : []),
    ...(!lacking
      ? []
      : [
          `it has lost entries of ${count(lacking, "session", "sessions")} that were acknowledged here; fleet restore uploads them again`,
        ]),
    ...(unrecorded === 0
      ? []
      : [`the disk refuses the record of acknowledged entries in ${count(unrecorded, "session", "sessions")}`]),
    ...(kept === 0
      ? []
      : [
          `${count(kept, "file", "files")} of entries that it refused; recover lists them, and appends them as branches`,
        ]),
  ];
}

function catalogText({ state, sizeBytes, reason }: Diagnosis["catalog"]): string {
  if (state === "sound") return `sound, ${formatSize(sizeBytes)}`;
  if (state === "missing") return "none yet; the next list makes it";
  if (state === "unused") return "none: there is no SQLite, so that lists and searches read the sessions";
  if (state === "busy") return show`it could not be looked at (${reason})`;
  return show`damaged (${reason}); doctor --fix throws it away, and the next list makes another`;
}

/** Returns a heading with the rows of a list, as many as are wanted. */
function* section(title: string, rows: readonly string[], most: number, page: OutputStyle): Generator<string> {
  yield "";
  yield page.paint("bold", title);
  // A person copies a path.
  for (const row of rows.slice(0, most)) yield /^ {2}~?\//.test(row) ? row : cutTo(row, page.width);
  if (rows.length > most) yield page.paint("dim", cutTo(`  and ${group(rows.length - most)} more; --all`, page.width));
}

/** Returns a session as a row begins: its short id and, where there is room, its name. */
function sessionText(
  { shortId, sessionPath, name }: Pick<Diagnosis["damaged"][number], "shortId" | "sessionPath" | "name">,
  { width, home }: OutputStyle,
): string {
  const id = shortId === null ? shortenPath(sessionPath, home) : show`${shortId}`;
  const available = Math.floor(width * 0.35) - id.length;
  return name === null || available < 8 ? id : `${id}  ${cutTo(escapeLine(name), available)}`;
}

function* damagedLines(damaged: Diagnosis["damaged"], most: number, page: OutputStyle): Generator<string> {
  if (damaged.length === 0) return;
  yield "";
  yield page.paint("red", `${count(damaged.length, "damaged session", "damaged sessions")}:`);
  for (const session of damaged.slice(0, most)) {
    const { reasons, damageCount } = session;
    yield cutTo(`  ${sessionText(session, page)}`, page.width);
    const more = damageCount > reasons.length ? [`and ${group(damageCount - reasons.length)} more places`] : [];
    for (const text of [
      ...reasons.map((reason: string) => rewordAsVerbs(escapeLine(reason))),
      ...more,
      remedyText(session),
    ])
      yield `    ${text}`;
  }
  if (damaged.length > most) yield page.paint("dim", `  and ${group(damaged.length - most)} more; --all`);
}

function remedyText({ remedy, shortId, sessionPath, archived }: Diagnosis["damaged"][number]): string {
  const name = shortId === null || archived ? show`${sessionPath}` : show`${shortId}`;
  if (remedy === "repair") return `Repair it: repair ${name}`;
  if (remedy === "finish")
    return `Finish it: ${/\.v2$/.test(sessionPath) ? `rollback ${name}` : `migrate ${name} --apply`}`;
  return "Nothing repairs it: restore it from a backup, or move it elsewhere if it is no session.";
}

function* sameIdLines(sameIds: Diagnosis["sameIds"], most: number, page: OutputStyle): Generator<string> {
  if (sameIds.length === 0) return;
  yield "";
  const ids = count(sameIds.length, "id", "ids");
  const heading = `${ids} that several files have (name each by its path; fork <path> copies one under a new id):`;
  yield page.paint("bold", heading);
  for (const { sessionId, sessionPaths } of sameIds.slice(0, most)) {
    yield show`  ${sessionId}`;
    for (const path of sessionPaths) yield `    ${shortenPath(path, page.home)}`;
  }
  if (sameIds.length > most) yield page.paint("dim", `  and ${group(sameIds.length - most)} more; --all`);
}

const HIDDEN: Readonly<Record<string, readonly [title: string, remedy: string]>> = {
  container: ["are in Session Store V2, where agents do not look", "rollback <id> makes a file of one"],
  database: ["are in databases", "migrate <file> --apply takes one in"],
  no_header: ["do not begin with a header", "repair <id> puts one there"],
  older_version: ["have an older version, which pi_agent_rust does not read", "Pi raises it when it opens one"],
  newer_version: [
    "have a newer version than it and this program know",
    "nothing is wrong with them; use a newer version of this program",
  ],
  unknown_format: ["have a format that is not known here", "nothing is wrong with them; show <file> says what each is"],
  no_cwd: ["name no working directory", "relocate <id> <dir> gives one a directory"],
  cwd_missing: [
    "were in a directory that does not exist any more",
    "list --cwd <dir> lists those of one, relocate --from <dir> <new> gives them another",
  ],
  other_folder: ["are not in the folder of their directory", "relocate <id or path> <dir> moves one there"],
};

function* hiddenLines(hidden: Diagnosis["hidden"], most: number, page: OutputStyle): Generator<string> {
  for (const [reason, [title, remedy]] of Object.entries(HIDDEN)) {
    const these = hidden.filter((session) => session.reason === reason);
    if (these.length === 0) continue;
    const heading = `${count(these.length, "session", "sessions")} that ${agentsText(these[0].agents)} cannot show: they ${title} (${remedy}).`;
    const rows =
      reason === "cwd_missing"
        ? directoryRows(these, page)
        : these.map(
            (one) =>
              `  ${sessionText(one, page)}${one.cwd === undefined ? "" : `  ${shortenPath(one.cwd, page.home)}`}`,
          );
    yield* section(heading, rows, most, page);
  }
  yield* emptyLines(hidden, most, page);
}

/** Yields the command that deletes the empty files: a path in each line, as a terminal keeps those whole. */
function* emptyLines(hidden: Diagnosis["hidden"], most: number, page: OutputStyle): Generator<string> {
  const files = hidden.filter(({ reason }) => reason === "empty_file").map(({ sessionPath }) => sessionPath);
  if (files.length === 0) return;
  const shown = files.slice(0, most);
  const empty = `${count(files.length, "empty file", "empty files")} in which nothing was ever said`;
  yield "";
  yield page.paint("bold", `${empty}; this moves ${shown.length === 1 ? "it" : "them"} to the trash:`);
  yield "  delete \\";
  for (const [n, file] of shown.entries()) yield `    ${quotePath(file, page)}${n + 1 < shown.length ? " \\" : ""}`;
  if (files.length > most) yield page.paint("dim", `  and ${group(files.length - most)} more; --all`);
}

/** Returns a path as a shell takes it. */
function quotePath(path: string, { home }: OutputStyle): string {
  const short = shortenPath(path, home);
  const isPlain = short.startsWith("~/") && quoteWord(short.slice(2)) === short.slice(2);
  return isPlain ? short : quoteWord(show`${path}`);
}

/** Returns a row for each directory, the one with the most sessions first. */
function directoryRows(hidden: Diagnosis["hidden"], { home }: OutputStyle): string[] {
  const counts = new Map<string, number>();
  for (const { cwd = "" } of hidden) counts.set(cwd, (counts.get(cwd) ?? 0) + 1);
  return [...counts]
    .sort(([, a], [, b]) => b - a)
    .map(([cwd, n]) => `  ${group(n).padStart(COUNT)}  ${shortenPath(cwd, home)}`);
}

/** Returns a paragraph about each file where sessions are kept that none can be read from. */
export function* formatUnreadFiles(
  files: readonly { readonly text: string; readonly isDamaged: boolean }[] = [],
  page: OutputStyle,
  most = MOST_ROWS,
): Generator<string> {
  if (files.length > 0) yield "";
  for (const { text, isDamaged } of files.slice(0, most))
    yield page.paint(isDamaged ? "red" : "plain", rewordAsVerbs(escapeLine(text)));
  if (files.length > most) yield page.paint("dim", `and ${count(files.length - most, "more file", "more files")}`);
}

function* lockLines(locks: Diagnosis["locks"], most: number, page: OutputStyle): Generator<string> {
  const rowOf = ({ shortId, sessionPath, holder }: Diagnosis["locks"][number]): string => {
    const session = shortId ?? shortenPath(sessionPath ?? "a session elsewhere", page.home);
    return show`  ${session}  process ${holder.pid}, ${agoText(holder.since, page)}, ${holder.client}`;
  };
  const [held, stale] = [false, true].map((wanted) => locks.filter(({ isStale }) => isStale === wanted).map(rowOf));
  if (held.length > 0) yield* section(`${count(held.length, "session", "sessions")} in use:`, held, most, page);
  if (stale.length > 0)
    yield* section(`${count(stale.length, "lock", "locks")} that dead processes left:`, stale, most, page);
}

export const KINDS: Readonly<Record<string, readonly [one: string, many: string]>> = {
  backup: ["backup", "backups"],
  migrated: ["file of a migrated session", "files of migrated sessions"],
  rolled_back: ["container that was rolled back", "containers that were rolled back"],
  temporary: ["temporary file", "temporary files"],
  announcement: ["announcement of a killed server", "announcements of killed servers"],
};

function* leftoverLines({ leftovers }: Diagnosis, page: OutputStyle): Generator<string> {
  if (leftovers.length === 0) return;
  const rows = leftovers.map(({ kind, count: n, sizeBytes, oldest }) => {
    const [one, many] = KINDS[kind] ?? [show`${kind}`, show`${kind}`];
    return `  ${formatSize(sizeBytes).padStart(7)}  ${count(n, one, many)}, ${n === 1 ? "left" : "oldest"} ${agoText(oldest, page)}`;
  });
  yield* section("Left over; prune shows it, and removes it with --apply:", rows, rows.length, page);
}

/** Returns a line about something that takes space: its size, its age, and its description. */
export function formatSizedRow(bytes: number, at: string, text: string, page: OutputStyle): string {
  return cutTo(`  ${formatSize(bytes).padStart(7)}  ${agoText(at, page).padEnd(8)}  ${text}`, page.width);
}

/** Returns how long ago something was. */
function agoText(at: string, { now }: OutputStyle): string {
  const since = now - Date.parse(at);
  if (Number.isNaN(since)) return "some time ago";
  return since < 60_000 ? "just now" : `${formatAge(since)} ago`;
}

function* exposedLines(exposed: Diagnosis["exposed"], most: number, page: OutputStyle): Generator<string> {
  if (exposed.length === 0) return;
  const rows = exposed.map(({ path, mode, fileCount, isOwn }) => {
    const files = fileCount > 0 ? `, ${count(fileCount, "file", "files")}` : "";
    return `  ${mode}  ${shortenPath(path, page.home)}${isOwn ? " (ours; doctor --fix closes it)" : files}`;
  });
  yield* section("Other users of this machine can read:", rows, most, page);
}

function* fixLines({ fixes, fixed, failed }: Diagnosis, page: OutputStyle): Generator<string> {
  const rows = (list: Diagnosis["fixes"]): string[] =>
    list.flatMap(({ text, path }) => [show`  ${text}`, `    ${shortenPath(path, page.home)}`]);
  if (fixed && fixed.length > 0) yield* section("Done:", rows(fixed), Number.POSITIVE_INFINITY, page);
  if (failed && failed.length > 0) {
    const failures = failed.flatMap(({ fix, reason }) => [...rows([fix]), show`    ${reason}`]);
    yield* section("Not done:", failures, Number.POSITIVE_INFINITY, page);
  }
  if (fixes.length > 0 && fixed === undefined)
    yield* section("doctor --fix would do this:", rows(fixes), Number.POSITIVE_INFINITY, page);
}
