import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { requireYes } from "../confirmed.ts";
import { UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, cutTo, escapeLine, formatSize, shortenId, shortenPath, show } from "../terminal/text.ts";
import { parseAgeFlag } from "../time-parser.ts";
import { defineVerb, type ResultOf, type VerbArguments, type VerbContext } from "../verb.ts";
import { rewordAsVerbs } from "../wording.ts";
import { formatSizedRow, KINDS } from "./doctor.ts";

export const prune = defineVerb({
  name: "prune",
  meaning: "show leftover files of sessions, and remove them",
  operands: ["[path...]"],
  flags: {
    "--apply": {
      meaning: "move it to the trash, from where undo brings it back; remove announcements of killed servers for good",
    },
    "--permanent": { meaning: "with --apply: remove it for good" },
    "--older-than": { value: "time", meaning: "choose only files from before this time, such as 30d" },
    "--trash": { meaning: "look at the server's own trash instead; --apply empties it, as trash empty does" },
    "--yes": { meaning: "do not ask before removing for good; required without a terminal" },
  },
  more: "It shows backups, files of migrated sessions, containers that were rolled back, and what dead processes left. Without --apply, it changes nothing. It keeps what belongs to a session in use and, unless you name its path, what may be the only copy.",
  onInterrupt:
    "Each leftover is in its place, in the trash or removed; prune shows those in their place, and undo brings back those in the trash.",
  async run(asking, given) {
    const { flags, operands } = given;
    const before = parseAgeFlag(flags, "--older-than", asking);
    if (flags.has("--permanent") && !flags.has("--apply")) throw new UsageError("--permanent goes with --apply.");
    if (flags.has("--trash")) {
      if (operands.length > 0) throw new UsageError("With --trash, prune takes no paths; --older-than says what goes.");
      if (flags.has("--permanent")) throw new UsageError("--trash removes for good always. Leave --permanent out.");
      return emptyTrash(asking, given, before, flags.has("--apply"));
    }
    const paths = operands.length === 0 ? undefined : operands.map((path) => toAbsolutePath(path, asking.cwd));
    const wanted = { paths, before };
    // Naming the only copy of something confirms its removal.
    const force = paths === undefined ? undefined : true;
    if (!flags.has("--apply")) return asking.ask("list_leftovers", wanted);
    if (!flags.has("--permanent")) return asking.ask("prune_leftovers", { ...wanted, force });
    const { leftovers } = await asking.ask("list_leftovers", wanted);
    const going = leftovers.filter((one) => (paths ? !one.isNeeded : one.keptBecause === null));
    const remaining = leftovers.filter((one) => !going.includes(one));
    if (going.length === 0) return { removed: [], removedBytes: 0, kept: remaining };
    await mayRemove(asking, given, `${count(going.length, "leftover", "leftovers")} (${formatSize(bytesOf(going))})`);
    // Only what the question was about goes.
    const those = going.map(({ path }) => path);
    const result = await asking.ask("prune_leftovers", { paths: those, permanent: true, force });
    return { ...result, kept: [...result.kept, ...remaining] };
  },
  print: (result, { flags }, page) => lines(result, flags, page),
});

export const emptyingTrash = defineVerb({
  name: "trash empty",
  meaning: "remove deleted sessions for good",
  operands: [],
  flags: {
    "--older-than": { value: "time", meaning: "remove only what was deleted before this time, such as 30d" },
    "--yes": { meaning: "do not ask; required without a terminal" },
  },
  more: "It asks first, with their number and size. Nothing brings them back.",
  onInterrupt: "Each session is either in the trash or removed; trash lists those that are there.",
  run: (asking, given) => emptyTrash(asking, given, parseAgeFlag(given.flags, "--older-than", asking), true),
  print: (result, { flags }, page) => trashLines(result, flags, page, true),
});

type PrunedLeftover = ResultOf<"list_leftovers">["leftovers"][number];

/** Asks before something is removed for good. Throws UsageError if no person can be asked, and cancelled. */
async function mayRemove(asking: VerbContext, { flags }: VerbArguments, what: string): Promise<void> {
  if (flags.has("--yes")) return;
  await requireYes(asking, `Remove ${what} for good? Nothing brings it back.`, {
    alone: "There is no terminal to ask on before something is removed for good. Use --yes.",
    refused: "Nothing was removed.",
  });
}

/** Empties the trash of what is older, with `apply`; without it, only returns that. */
async function emptyTrash(asking: VerbContext, given: VerbArguments, before: string | undefined, apply: boolean) {
  const would = await asking.ask("empty_trash", { before, dryRun: true });
  if (!apply || would.items.length === 0) return would;
  const { items, totalBytes } = would;
  await mayRemove(asking, given, `${count(items.length, "item", "items")} of the trash (${formatSize(totalBytes)})`);
  return asking.ask("empty_trash", { before });
}

type Pruned = Pick<ResultOf<"prune_leftovers">, "removed" | "kept">;

function* lines(
  result: ResultOf<"empty_trash"> | ResultOf<"list_leftovers"> | Pruned,
  flags: VerbArguments["flags"],
  page: OutputStyle,
): Generator<string> {
  if ("items" in result) yield* trashLines(result, flags, page);
  else if ("leftovers" in result) yield* preview(result, page);
  else {
    yield* resultLines(result, flags.has("--permanent"), page);
    yield* keptLines(result.kept, page);
  }
}

function* preview({ leftovers }: ResultOf<"list_leftovers">, page: OutputStyle): Generator<string> {
  const going = leftovers.filter((one) => one.keptBecause === null);
  if (leftovers.length === 0) yield "Nothing is left over.";
  for (const [kind, [, many]] of Object.entries(KINDS)) {
    const these = going.filter((one) => one.kind === kind);
    if (these.length === 0) continue;
    const head = `${many[0].toUpperCase()}${many.slice(1)}: ${these.length}, ${formatSize(bytesOf(these))}`;
    yield page.paint("bold", cutTo(head, page.width));
    for (const one of these) yield rowText(one, page);
    yield* consequences(these, page);
    yield "";
  }
  yield* keptLines(
    leftovers.filter((one) => one.keptBecause !== null),
    page,
  );
  if (going.length > 0) {
    const forGood = going.filter(({ kind }) => kind === "announcement").length;
    const sentences = [
      `${count(going.length, "leftover", "leftovers")}, ${formatSize(bytesOf(going))}.`,
      ...(going.length > forGood ? ["With --apply, prune moves them to the trash; undo brings them back."] : []),
      ...(forGood > 0
        ? [`--apply removes ${count(forGood, ...KINDS.announcement)} for good; sessions lose nothing.`]
        : []),
    ];
    yield sentences.join(" ");
  }
}

function bytesOf(leftovers: readonly PrunedLeftover[]): number {
  return leftovers.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

/** Returns a leftover as one line: its size and age, and the session that it belongs to. */
function rowText({ sizeBytes, since, sessionId, name, path }: PrunedLeftover, page: OutputStyle): string {
  const id = sessionId === null ? "" : `${shortenId(sessionId)}  `;
  const what = name === null ? shortenPath(path, page.home) : escapeLine(name);
  return formatSizedRow(sizeBytes, since, `${id}${what}`, page);
}

/** Returns the losses that come with removing leftovers, each sentence once. */
function* consequences(leftovers: readonly PrunedLeftover[], page: OutputStyle): Generator<string> {
  for (const text of new Set(leftovers.map(({ consequence }) => consequence)))
    if (text !== null) yield page.paint("yellow", `  ${rewordAsVerbs(text)}`);
}

function* keptLines(kept: readonly PrunedLeftover[], page: OutputStyle): Generator<string> {
  if (kept.length === 0) return;
  yield page.paint("bold", `${count(kept.length, "leftover stays", "leftovers stay")}, ${formatSize(bytesOf(kept))}`);
  for (const one of kept) {
    yield rowText(one, page);
    yield `    ${rewordAsVerbs(escapeLine(one.keptBecause ?? ""))}`;
    // A path that is cut or wrapped cannot be copied.
    if (!one.isNeeded) yield show`    ${one.path}`;
  }
  if (kept.some(({ isNeeded }) => !isNeeded)) yield "prune <path> --apply moves one nevertheless.";
  yield "";
}

function* resultLines(
  { removed: all }: Pick<ResultOf<"prune_leftovers">, "removed">,
  permanent: boolean,
  page: OutputStyle,
): Generator<string> {
  const removed = all.filter(({ kind }) => kind !== "announcement");
  const announced = all.length - removed.length;
  if (all.length === 0) yield "Nothing was removed.";
  if (announced > 0) yield `${count(announced, ...KINDS.announcement)} removed for good; sessions lose nothing.`;
  if (removed.length > 0) {
    const what = `${count(removed.length, "leftover", "leftovers")} (${formatSize(bytesOf(removed))})`;
    yield permanent ? `${what} removed for good.` : `${what} moved to the trash. undo brings it back.`;
    // A sentence says "this file": the ones that it is about stand above it.
    for (const text of new Set(removed.map(({ consequence }) => consequence))) {
      if (text === null) continue;
      const these = removed.filter(({ consequence }) => consequence === text);
      for (const { path } of these) yield `  ${shortenPath(path, page.home)}`;
      yield* consequences(these, page);
    }
  }
}

function* trashLines(
  { items, totalBytes, kept }: ResultOf<"empty_trash">,
  flags: VerbArguments["flags"],
  page: OutputStyle,
  applied = flags.has("--apply"),
): Generator<string> {
  if (items.length === 0) yield flags.has("--older-than") ? "The trash has nothing so old." : "The trash is empty.";
  for (const { sessionPath, sessionId, name, deletedAt, sizeBytes } of items) {
    const id = sessionId === null ? "leftovers" : shortenId(sessionId);
    const what = name === null ? shortenPath(sessionPath, page.home) : escapeLine(name);
    yield formatSizedRow(sizeBytes, deletedAt, `${id}  ${what}`, page);
  }
  for (const { itemPath, reason } of kept) yield show`  ${itemPath}: ${reason}`;
  if (items.length === 0) return;
  const what = `${count(items.length, "item", "items")}, ${formatSize(totalBytes)}`;
  yield applied
    ? `${what}, removed for good.`
    : `${what}. With --apply, prune removes these for good. Nothing brings them back.`;
}
