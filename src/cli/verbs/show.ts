import { formatSpent } from "../comparison-view.ts";
import { BEFORE_ALL, formatEntry, formatMessage } from "../conversation.ts";
import { runWithEntry } from "../entries.ts";
import { parsePositive, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, escapeLine, formatClock, shortenId, shortenPath, show } from "../terminal/text.ts";
import { defineVerb, openNamedSession, type ResultOf, type VerbContext } from "../verb.ts";
import { findLatestHere } from "./resume.ts";
import { formatNewerVersion } from "./verify.ts";

/** The messages of the context, or the entries of a path, and what there is besides these. */
type ShownPage = (
  | (ResultOf<"get_messages"> & { readonly entries?: undefined })
  | (ResultOf<"get_path"> & { readonly messages?: undefined })
) & { readonly newer?: { readonly reason: string }; readonly hasMore?: boolean; readonly head?: SessionHead };

/** The facts above a conversation. */
interface SessionHead {
  readonly state: ResultOf<"get_state">;
  /** Undefined in a large session. */
  readonly spent: ResultOf<"get_session_stats"> | undefined;
  /** When a user or the model said something last; undefined if nothing is known of it. */
  readonly last: string | undefined;
}

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
    const state = await asking.ask("get_state");
    const { diagnostics, entryCount, leafId, sessionName } = state;
    // A program reads the result, and a later page has no header.
    const isHeaded = !flags.has("--json") && !flags.has("--cursor");
    if (operands.length === 0 && !isHeaded) asking.say(`This is ${sessionName ?? shortenId(sessionId)}.`);
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
    const head = isHeaded ? await findHead(asking, state) : undefined;
    // A result that is not copied is printed as it came.
    return newer || hasMore || head
      ? { ...shown, ...(newer ? { newer } : {}), ...(hasMore ? { hasMore } : {}), ...(head ? { head } : {}) }
      : shown;
  },
  *print({ messages, entries = [], nextCursor, newer, hasMore, head }, { flags }, page) {
    const isWhole = flags.has("--full");
    const items = messages ?? entries;
    if (head) yield* [...formatHead(head, page), ""];
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

/** Entries of a session whose cost is counted, which reads all of them; stats shows that of larger ones. */
const MOST_COUNTED = 10_000;
/** Entries that are looked at for the last message; names, labels and results of tools may come after it. */
const LOOKED_AT = 50;

async function findHead({ ask }: VerbContext, state: SessionHead["state"]): Promise<SessionHead> {
  const spent = state.entryCount > MOST_COUNTED ? undefined : await ask("get_session_stats");
  const { entries } = await ask("preview_session", { before: LOOKED_AT, after: 0, characters: 1 });
  return { state, spent, last: entries.findLast(({ role }) => role === "user" || role === "assistant")?.timestamp };
}

/** Returns the lines above a conversation: which session it is, where and when it was had, its size and cost. */
function formatHead({ state, spent, last }: SessionHead, { home, paint }: OutputStyle): string[] {
  const { sessionId, sessionName, cwd, entryCount, model } = state;
  const time = formatClock(last);
  const facts = [
    count(entryCount, "entry", "entries"),
    ...(model ? [show`${model.provider}/${model.id}`] : []),
    ...(spent && spent.tokens.total + spent.cost > 0 ? [formatSpent(spent)] : []),
  ];
  return [
    paint("yellow", `${show`session ${sessionId}`}${sessionName === null ? "" : `, ${escapeLine(sessionName)}`}`),
    `${shortenPath(cwd, home)}${time === "" ? "" : `, last message ${time}`}`,
    facts.join(", "),
  ];
}
