/**
 * New entries of a session while its page is open, as server-sent events. Each event's id is the reader's position, so
 * that a reader whose connection broke gets the missed events and nothing twice. Nothing is kept for a slow reader: the
 * next entries are fetched when it has taken the earlier ones.
 */

import { ALLOW_NOTHING, AskFailed, type ViewAnswer, type ViewRequest } from "./answer.ts";
import { FragmentRenderer, getMessage, type StoredEntry } from "./fragments.ts";
import type { Watch, Watches } from "./watches.ts";

/** Entries that are asked for at a time. */
const BATCH = 50;
/** Entries of the page that are looked at for the answer that new results belong to. */
const BACK = 100;
/** Milliseconds between two signs of life. Each is a look for entries, too. */
const BEAT = 15_000;
/** Milliseconds until a reader whose connection broke comes back. */
const RETRY = 1000;
/** Characters of an event id: it comes back in a header. */
const LONGEST = 4096;

/** Position of a reader: the last entry that it has in file order, and the end of the path that it sees. */
interface ReadPlace {
  readonly after: string | null;
  readonly tail: string | null;
}

/** Returns a place as text for an address or a header; undefined where ids are too long for these. */
export function formatPlace({ after, tail }: ReadPlace): string | undefined {
  const text = Buffer.from(JSON.stringify([after, tail])).toString("base64url");
  return text.length > LONGEST ? undefined : text;
}

/** Returns the place that a text says; undefined if it says none. */
function placeIn(text: string): ReadPlace | undefined {
  if (text.length > LONGEST) return undefined;
  try {
    const [after, tail] = JSON.parse(Buffer.from(text, "base64url").toString());
    const isId = (one: unknown): boolean => one === null || typeof one === "string";
    return isId(after) && isId(tail) ? { after, tail } : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the events of a session from a place on. Throws AskFailed where it cannot be followed. */
export async function streamEvents(watches: Watches, request: ViewRequest): Promise<ViewAnswer> {
  const { query, lastEventId, signal } = request;
  const place = placeIn(lastEventId ?? query.get("from") ?? "");
  if (place === undefined)
    throw new AskFailed("invalid_params", "The address names no place in the session. Reload the page.");
  const watch = await watches.open(query.get("path") ?? "");
  return {
    status: 200,
    type: "text/event-stream; charset=utf-8",
    policy: ALLOW_NOTHING,
    body: follow(watch, place, signal),
  };
}

async function* follow(watch: Watch, from: ReadPlace, signal: AbortSignal): AsyncGenerator<string> {
  const notifier = new ChangeNotifier(signal);
  const stop = watch.listen(() => notifier.ring());
  try {
    yield `retry: ${RETRY}\n\n`;
    const reader = new Reader(watch, from);
    await reader.begin();
    yield eventText("begun", {}, reader.place);
    while (!signal.aborted) {
      notifier.quiet();
      if (watch.isGone) return yield eventText("gone", {});
      yield* reader.news();
      if (reader.isOver) return;
      if (!(await notifier.rings(BEAT))) yield ": still here\n\n";
    }
  } catch (error) {
    if (!(error instanceof AskFailed)) throw error;
    // The entry that the reader has last may be gone with the file that was here.
    yield error.failure === "entry_not_found"
      ? eventText("moved", { why: "rewritten" })
      : eventText("failed", { sentence: error.message });
  } finally {
    stop();
  }
}

function eventText(name: string, data: object, place?: ReadPlace): string {
  const text = place && formatPlace(place);
  return `${text === undefined ? "" : `id: ${text}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Returns true if an entry has pictures without their data. */
function lacksPictures(entry: StoredEntry): boolean {
  const { content } = entry.type === "message" ? getMessage(entry) : entry;
  return Array.isArray(content) && content.some((block) => block?.type === "image" && typeof block.data === "object");
}

/** One who reads a session as it grows. */
class Reader {
  place: ReadPlace;
  /** True once nothing can follow that fits the reader's page. */
  isOver = false;
  private readonly watch: Watch;
  private readonly fragments = new FragmentRenderer();
  /** New entries of other branches. */
  private skipped = 0;

  constructor(watch: Watch, place: ReadPlace) {
    this.watch = watch;
    this.place = place;
  }

  /** Looks back for the answer at the end of the path, whose results may come. Throws AskFailed. */
  async begin(): Promise<void> {
    const { tail } = this.place;
    const { path } = await this.watch.ask("get_session_stats", { leafId: tail });
    const back: StoredEntry[] = [];
    for (let id = tail; id !== null && back.length < BACK; ) {
      const entry = await this.whole(id);
      back.push(entry);
      if (getMessage(entry).role === "assistant") break;
      id = typeof entry.parentId === "string" ? entry.parentId : null;
    }
    this.fragments.recall(back.reverse(), path.userMessages);
  }

  /** Returns an entry with its pictures; without them where they are too large for an answer. Throws AskFailed. */
  private async whole(entryId: string): Promise<StoredEntry> {
    try {
      return (await this.watch.ask("get_entry", { entryId })).entry;
    } catch (error) {
      if (!(error instanceof AskFailed) || error.failure !== "message_too_large") throw error;
      return (await this.watch.ask("get_entry", { entryId, images: "omit" })).entry;
    }
  }

  /** Yields the events since the last call. Throws AskFailed. */
  async *news(): AsyncGenerator<string> {
    const { watch, skipped: before } = this;
    let found: {
      readonly entries: readonly StoredEntry[];
      readonly leafId: string | null;
      readonly nextCursor?: string;
    };
    let isNew = false;
    do {
      found = await watch.ask("get_entries", {
        ...{ since: this.place.after ?? undefined, limit: BATCH },
        // Those of a batch may be more than one answer can have.
        images: "reference",
      });
      for (const entry of found.entries) {
        isNew = true;
        const isNext = (entry.parentId ?? null) === this.place.tail;
        this.place = { after: entry.id, tail: isNext ? entry.id : this.place.tail };
        if (isNext) {
          const shown = lacksPictures(entry) ? await this.whole(entry.id) : entry;
          yield eventText("entry", this.fragments.draw(shown), this.place);
        } else this.skipped++;
      }
    } while (found.nextCursor !== undefined);
    const leafId = this.skipped > before ? await watch.renew() : found.leafId;
    if (leafId !== this.place.tail) {
      this.isOver = true;
      yield eventText("moved", { why: "branch" });
    } else if (isNew) yield eventText("caught", { aside: this.skipped }, this.place);
  }
}

/** Wakes one who waits. */
class ChangeNotifier {
  private isRung = false;
  private wake: (() => void) | undefined;
  private readonly signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.signal = signal;
    signal.addEventListener("abort", () => this.ring(), { once: true });
  }

  ring(): void {
    this.isRung = true;
    this.wake?.();
  }

  quiet(): void {
    this.isRung = this.signal.aborted;
  }

  /** Resolves to whether it rang within so many milliseconds. */
  async rings(milliseconds: number): Promise<boolean> {
    if (this.isRung) return true;
    let late: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      late = setTimeout(resolve, milliseconds);
    });
    clearTimeout(late);
    this.wake = undefined;
    return this.isRung;
  }
}
