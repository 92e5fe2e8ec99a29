import { BEFORE_ALL, formatEntry, formatMessage } from "../conversation.ts";
import { runWithEntry } from "../entries.ts";
import { parsePositive, UsageError } from "../options.ts";
import { shortenId, show } from "../terminal/text.ts";
import { defineVerb, openNamedSession, type ResultOf } from "../verb.ts";
import { findLatestHere } from "./resume.ts";
import { formatNewerVersion } from "./verify.ts";

/** The messages of the context, or the entries of a path, and what there is besides these. */
type ShownPage = (
  | (ResultOf<"get_messages"> & { readonly entries?: undefined })
  | (ResultOf<"get_path"> & { readonly messages?: undefined })
) & { readonly newer?: { readonly reason: string }; readonly hasMore?: boolean };

/** Messages that --tail prints without a number. */
const TAIL = 10;

export default defineVerb({
  name: "show",
  aliases: ["cat"],
  meaning: "print the conversation as the model sees it",
  operands: ["[session]"],
  flags: {
    "--path": {
      meaning:
        "print every entry of the tree's path from the first to the leaf, with ids, also those that a compaction left out",
    },
    "--entry": { value: "id", meaning: "print the path to the entry with this id or label; implies --path" },
    "--full": { meaning: "print the whole output of tools" },
    "--tail": {
      value: "n",
      otherwise: `${TAIL}`,
      meaning: `print the last messages or entries only; ${TAIL} if no number follows`,
    },
    "--limit": { value: "n", meaning: "print at most this many messages or entries, from the oldest on" },
    "--cursor": { value: "cursor", meaning: "continue where the last page ended" },
  },
  more: "Without a session, it prints the one of this directory with the latest message. stats prints the path of a session's file, list --paths those of several.",
  async run(asking, { operands, flags, took }) {
    if (took.length > 0 && !/^\d+$/.test(flags.get("--tail") ?? ""))
      throw new UsageError("--tail took the word after it; put it last, or write --tail=.");
    const { sessionId } = await openNamedSession(asking, operands[0] ?? (await findLatestHere(asking)));
    const { diagnostics, entryCount, leafId, sessionName } = await asking.ask("get_state");
    if (operands.length === 0) asking.say(`This is ${sessionName ?? shortenId(sessionId)}.`);
    // Nothing of a picture but its type is printed, and the data of all of them can be longer than a text can be.
    const images = flags.has("--json") ? undefined : ("reference" as const);
    const tail = parsePositive(flags, "--tail");
    if (tail !== undefined && flags.has("--limit"))
      throw new UsageError("--tail prints the last messages, --limit the first. Give one of them.");
    const limit = tail ?? parsePositive(flags, "--limit");
    const page = { fromEnd: tail === undefined ? undefined : true, limit, cursor: flags.get("--cursor"), images };
    const entryId = flags.get("--entry");
    const isBeforeAll = entryId === undefined && leafId === null;
    const newer = diagnostics.find(({ kind }) => kind === "newer_version");
    const isPath = entryId === undefined && flags.has("--path");
    const shown: ShownPage = await (entryId === undefined
      ? asking.ask(isPath ? "get_path" : "get_messages", page)
      : runWithEntry(asking, entryId, (id) => asking.ask("get_path", { entryId: id, ...page })));
    const hasMore = isBeforeAll && entryCount > 0;
    // A result that is not copied is printed as it came.
    return newer || hasMore ? { ...shown, ...(newer ? { newer } : {}), ...(hasMore ? { hasMore } : {}) } : shown;
  },
  *print({ messages, entries = [], nextCursor, newer, hasMore }, { flags }, page) {
    const isWhole = flags.has("--full");
    const items = messages ?? entries;
    if (newer) yield* [formatNewerVersion(newer), ""];
    if (newer && items.length === 0) yield "Nothing in it is known here.";
    else if (items.length === 0) yield hasMore ? BEFORE_ALL : "Nothing was said yet.";
    const cursor = page.paint(
      "dim",
      show`There is more${flags.has("--tail") ? " before this" : ""}: --cursor ${nextCursor ?? ""}`,
    );
    const [before, after] = nextCursor === undefined ? [] : flags.has("--tail") ? [cursor] : [undefined, cursor];
    if (before !== undefined) yield* [before, ""];
    for (const [i, item] of items.entries()) {
      if (i > 0) yield "";
      yield* messages ? formatMessage(item, page, isWhole) : formatEntry(item, page, isWhole);
    }
    if (after !== undefined) yield* ["", after];
  },
});
