/** A line on the terminal that shows how far long work is, and goes away. */

import { formatSize, formatSpan, getWidth, group } from "./terminal/text.ts";

/** Milliseconds of work before which nothing is shown. */
const SHOW_AFTER = 1000;
/** Milliseconds between two drawings of the line. */
const REDRAW_AFTER = 100;
/** Columns of the bar at most. */
const BAR = 20;

/** The work of a command, and whether its steps are things that a person counts, or bytes. */
const WORK: Readonly<
  Record<string, { readonly doing: string; readonly isCounted?: boolean; readonly isBytes?: boolean }>
> = {
  list_sessions: { doing: "Reading sessions", isCounted: true },
  get_usage: { doing: "Reading sessions", isCounted: true },
  get_session_family: { doing: "Reading sessions", isCounted: true },
  search_sessions: { doing: "Indexing sessions", isBytes: true },
  import_session: { doing: "Importing" },
  export_session: { doing: "Exporting" },
  verify_session: { doing: "Checking" },
  repair_session: { doing: "Repairing" },
  migrate_session: { doing: "Migrating" },
  rollback_migration: { doing: "Rolling back" },
  get_health: { doing: "Looking at sessions", isCounted: true },
  verify_sessions: { doing: "Checking sessions", isCounted: true },
  list_leftovers: { doing: "Looking at leftovers", isCounted: true },
  prune_leftovers: { doing: "Removing", isCounted: true },
  empty_trash: { doing: "Removing", isCounted: true },
};

interface ProgressPlace {
  /** Columns of the terminal; 0 if it reports no size. */
  readonly columns: number;
  write(text: string): void;
  /** Returns the time in milliseconds. */
  now(): number;
}

export class ProgressLine {
  /** True while the line is on the terminal. */
  isShown = false;
  /** Called when the line is shown first. */
  onShow: () => void = () => {};
  private readonly place: ProgressPlace;
  private began: number | undefined;
  private drawn = 0;

  constructor(place: ProgressPlace) {
    this.place = place;
  }

  /** Begins to count the time of a piece of work. */
  begin(): void {
    this.began = this.place.now();
  }

  /** Shows that so much is done. `what` is the command that does it. */
  report(done: number, total: number, what: string): void {
    const now = this.place.now();
    this.began ??= now;
    const elapsed = now - this.began;
    if (elapsed < SHOW_AFTER || (this.isShown && now - this.drawn < REDRAW_AFTER && done < total)) return;
    if (!this.isShown) this.onShow();
    this.isShown = true;
    this.drawn = now;
    const text = formatProgress(done, total, elapsed, WORK[what], (this.place.columns || 80) - 1);
    this.place.write(`\r${text}\u001b[K`);
  }

  /** Takes the line off the terminal. */
  clear(): void {
    this.began = undefined;
    if (!this.isShown) return;
    this.isShown = false;
    this.place.write("\r\u001b[K");
  }
}

/** Returns as much of the work, its progress, its speed and the time left as fits so many columns. */
export function formatProgress(
  done: number,
  total: number,
  elapsed: number,
  work: (typeof WORK)[string] = { doing: "", isCounted: true },
  width = 80,
): string {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  const { doing, isCounted = false, isBytes = false } = work;
  const amount = isCounted
    ? `${group(done)} of ${group(total)}`
    : isBytes
      ? `${formatSize(done)} of ${formatSize(total)}`
      : `${Math.floor(100 * share)}%`;
  const rate = isCounted && elapsed > 0 ? rateText((1000 * done) / elapsed) : "";
  const left = share > 0 && share < 1 ? `${formatSpan((elapsed * (1 - share)) / share, Math.ceil)} left` : "";
  const all = [doing, barText(share, BAR), amount, rate, left];
  const ways = [all, [doing, barText(share, 10), amount, rate, left], [doing, amount, left], [amount, left], [amount]];
  const texts = ways.map((parts) => parts.filter((part) => part !== "").join("  "));
  return texts.find((text) => getWidth(text) <= width) ?? "";
}

function barText(share: number, width: number): string {
  const full = Math.round(width * share);
  return `[${"#".repeat(full)}${".".repeat(width - full)}]`;
}

function rateText(perSecond: number): string {
  if (perSecond >= 1) return `${group(Math.round(perSecond))}/s`;
  return perSecond > 0 ? `${group(Math.max(1, Math.round(perSecond * 60)))}/min` : "";
}
