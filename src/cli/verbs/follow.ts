import { decodeText, findValue, getElements, parseText, toBytes } from "../../core/json/json.ts";
import { getInfo } from "../../storage/fs/files.ts";
import { formatEntry, formatMessage } from "../conversation.ts";
import { UsageError } from "../options.ts";
import { show } from "../terminal/text.ts";
import {
  type AnyResult,
  CommandFailed,
  defineVerb,
  openNamedSession,
  type ResultOf,
  type VerbArguments,
  type VerbContext,
} from "../verb.ts";
import { findLatestHere } from "./resume.ts";

/** Milliseconds between two looks at the session's file. The server looks for new entries as often. */
const LOOK = 500;
/** Messages of those before that are shown. */
const BEFORE = 3;
/** Entry types that say something to a person. */
const SAYING = new Set(["message", "custom_message", "compaction", "branch_summary", "model_change"]);

export default defineVerb({
  name: "follow",
  meaning: "print what another process writes to a session, as it comes",
  operands: ["[session]"],
  serverOptions: ["--read-only", "--events=session_append,session_damage"],
  flags: {
    "--entries": { meaning: "print every entry with its id, also those without words" },
    "--full": { meaning: "print the whole output of tools" },
    "--last": {
      value: "n",
      meaning: `print this many of the last messages first; ${BEFORE} by default; not with --entries or --json`,
    },
    "--json": { meaning: "print each new entry as it is stored, one per line" },
  },
  more: "Without a session, it follows the one of this directory with the latest message. It looks for new entries twice a second, takes no lock and changes nothing. It says so when the session is repaired, moved, archived or deleted. Ctrl+C ends it.",
  async run(asking, given) {
    const follower = new Follower(asking, given);
    const undo = asking.onInterrupt(() => follower.end());
    try {
      await follower.run(given.operands[0] ?? (await findLatestHere(asking)));
    } finally {
      undo();
    }
  },
  print: () => [],
});

/** An entry that came, and its text as it is stored. */
interface ComingEntry {
  readonly entry: AnyResult;
  readonly text: string;
}

/** The session that is followed. */
class Follower {
  private readonly asking: VerbContext;
  private readonly flags: VerbArguments["flags"];
  private readonly over: Promise<void>;
  /** Ends the following. */
  end!: () => void;
  private fail!: (error: unknown) => void;
  /** Entries that came before the first lines were printed. */
  private readonly early: ComingEntry[] = [];
  private hasBegun = false;
  /** The parent of the next entry unless another entry says that the conversation continues elsewhere. */
  private leafId: string | null = null;

  constructor(asking: VerbContext, { flags }: VerbArguments) {
    this.asking = asking;
    this.flags = flags;
    this.over = new Promise((resolve, reject) => {
      this.end = resolve;
      this.fail = reject;
    });
  }

  async run(operand: string): Promise<void> {
    const { asking } = this;
    const last = lastOf(this.flags.get("--last"));
    asking.listen((name, params, text) => this.onEvent(name, params, text));
    await openNamedSession(asking, operand);
    const state = await asking.ask("get_state");
    asking.say(`Following ${state.sessionName ?? state.sessionId}. Ctrl+C ends it.`);
    await this.begin(state, last);
    const looking = this.watch(state);
    await this.over;
    clearInterval(looking);
  }

  /** Prints the last messages, and then what came meanwhile. */
  private async begin({ leafId, messageCount }: ResultOf<"get_state">, last: number): Promise<void> {
    this.leafId = leafId;
    if (last > 0 && messageCount > 0 && !this.flags.has("--json") && !this.flags.has("--entries")) {
      const cursor = `${leafId}.${Math.max(0, messageCount - last)}`;
      const { messages } = await this.asking.ask("get_messages", { cursor, images: "reference" });
      for (const message of messages) await this.print(formatMessage(message, this.asking.page(), this.isWhole));
    }
    while (this.early.length > 0) await this.printAll(newIn(this.early.splice(0), leafId));
    this.hasBegun = true;
  }

  private get isWhole(): boolean {
    return this.flags.has("--full");
  }

  private async onEvent(name: string, params: AnyResult, text: string): Promise<void> {
    if (name === "session_damage")
      for (const { kind, reason } of params.damage) if (kind === "lost_entries") this.asking.say(reason);
    if (name !== "session_append") return;
    if (params.entries === undefined) this.asking.say("Entries came that cannot be read.");
    const coming = comingIn(text);
    if (this.hasBegun) await this.printAll(coming);
    else this.early.push(...coming);
  }

  private async printAll(coming: readonly ComingEntry[]): Promise<void> {
    for (const { entry, text } of coming) {
      if (this.flags.has("--json")) await this.write(`${text}\n`);
      else await this.printEntry(entry);
      this.leafId = entry.id;
    }
  }

  private async printEntry(entry: AnyResult): Promise<void> {
    const { type, parentId = null } = entry;
    const showsAll = this.flags.has("--entries");
    if (!showsAll && !SAYING.has(type)) return;
    const isJump = parentId !== this.leafId;
    const page = this.asking.page();
    const message = { timestamp: entry.timestamp, ...entry.message };
    const isSpoken = !showsAll && type === "message";
    const lines = isSpoken ? formatMessage(message, page, this.isWhole) : formatEntry(entry, page, this.isWhole);
    const jump = page.paint("dim", show`(another branch, after ${parentId ?? "nothing"})`);
    await this.print(isJump ? [jump, ...lines] : lines);
  }

  private async print(lines: Iterable<string>): Promise<void> {
    await this.write(`${[...lines, ""].join("\n")}\n`);
  }

  private async write(text: string): Promise<void> {
    if (!(await this.asking.print(text))) this.end();
  }

  /** Looks for the session's file again and again, and says what became of it. */
  private watch({ sessionFile: file, sessionId }: ResultOf<"get_state">): NodeJS.Timeout {
    const sessionFile = file ?? "";
    const { disk } = this.asking;
    let known = getInfo(disk, sessionFile);
    let misses = 0;
    const look = (): void => {
      const found = getInfo(disk, sessionFile);
      misses = found ? 0 : misses + 1;
      const isReplaced = found && known && (found.inode !== known.inode || found.device !== known.device);
      if (isReplaced) this.asking.say("The session's file was replaced; this goes on with the new one.");
      if (found) known = found;
      // While one file replaces another, there may be none for a moment.
      if (misses !== 2) return;
      clearInterval(looking);
      this.sayWhere(sessionFile, sessionId).then(this.end, this.fail);
    };
    const looking = setInterval(look, LOOK);
    return looking;
  }

  /** Says where a session is that is no longer where it was. */
  private async sayWhere(sessionPath: string, sessionId: string): Promise<void> {
    const { ask, say } = this.asking;
    await ask("close_session");
    const { total } = await ask("list_sessions", { query: sessionId, archived: true, headerOnly: true, limit: 1 });
    const atPath = await sessionAt(this.asking, { sessionPath });
    if (atPath === undefined && total > 0) return say("The session was archived; unarchive brings it back.");
    const now = atPath ?? (await sessionAt(this.asking, { sessionId }));
    say(
      now === undefined
        ? "The session is gone: it was deleted or moved."
        : `The session is now at ${now}; follow goes on with that.`,
    );
  }
}

/** Returns the path for opening a session now; undefined if there is none. */
async function sessionAt(
  { ask }: VerbContext,
  where: { readonly sessionPath?: string; readonly sessionId?: string },
): Promise<string | undefined> {
  try {
    return (await ask("switch_session", where)).sessionFile ?? undefined;
  } catch (error) {
    if (error instanceof CommandFailed) return undefined;
    throw error;
  }
}

/** Returns the entries of an event, with their texts. */
function comingIn(text: string): ComingEntry[] {
  const bytes = toBytes(text);
  const entries = findValue(bytes, { start: 0, end: bytes.length }, ["params", "entries"]);
  const ranges = entries ? (getElements(bytes, entries.start, entries.end) ?? []) : [];
  return ranges.map(({ start, end }) => {
    const text = decodeText(bytes, start, end);
    return { entry: parseText(text) as AnyResult, text };
  });
}

/** Returns the entries that were not there yet when a leaf was the one with this id. */
function newIn(coming: readonly ComingEntry[], leafId: string | null): ComingEntry[] {
  const known = new Set<string | null>();
  const parents = new Map(coming.map(({ entry }) => [entry.id as string, (entry.parentId ?? null) as string | null]));
  for (let at = leafId; at !== null && parents.has(at) && !known.has(at); at = parents.get(at) ?? null) known.add(at);
  return coming.filter(({ entry }) => !known.has(entry.id));
}

function lastOf(value: string | undefined): number {
  if (value === undefined) return BEFORE;
  if (!/^\d{1,15}$/.test(value)) throw new UsageError(`--last takes a whole number; it got ${value}.`);
  return Number(value);
}
