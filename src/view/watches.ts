/** Watched sessions: each is open in the server, which follows the writes of other programs to it. */

import { AskFailed, type ViewHost } from "./answer.ts";

/** Sessions at a time: the server looks at the 64 that were used last each half second. */
const MOST = 32;
/** Milliseconds that a session without watchers stays open, so that a reader can come back. */
const LINGER = 30_000;
/** Milliseconds between two looks whether sessions are still where they were. */
const LOOK = 1000;
/** Checks in a row that must find no file: while one file replaces another, there may be none for a moment. */
const MISSES = 2;

/** A session that is followed. */
export interface Watch {
  /** True if its file has gone. */
  readonly isGone: boolean;
  /** Asks a command about it. Throws AskFailed. */
  // biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
  ask(method: string, params?: Readonly<Record<string, unknown>>): Promise<any>;
  /**
   * Opens it again, and returns where its leaf is then: the leaf of an open session goes only where others continue it,
   * and stays when they begin another branch.
   */
  renew(): Promise<string | null>;
  /** Calls back whenever something may have come. Returns what ends that. */
  listen(act: () => void): () => void;
}

interface OpenedSession {
  readonly sessionId: string;
  readonly sessionFile: string | null;
}

class OpenWatch implements Watch {
  readonly sessionId: string;
  readonly path: string;
  readonly file: string | null;
  readonly listeners = new Set<() => void>();
  misses = 0;
  linger: NodeJS.Timeout | undefined;
  private readonly host: ViewHost;
  private readonly left: (watch: OpenWatch) => void;
  /** Pending while it is opened again: meanwhile the server does not know it. */
  private renewing: Promise<string | null> | undefined;

  constructor(host: ViewHost, path: string, opened: OpenedSession, left: (watch: OpenWatch) => void) {
    this.host = host;
    this.path = path;
    this.sessionId = opened.sessionId;
    this.file = opened.sessionFile;
    this.left = left;
  }

  // biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
  async ask(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<any> {
    // An opening that failed is found out by the question.
    await this.renewing?.catch(() => undefined);
    return this.host.ask(method, { sessionId: this.sessionId, ...params });
  }

  renew(): Promise<string | null> {
    this.renewing ??= this.openAgain().finally(() => {
      this.renewing = undefined;
    });
    return this.renewing;
  }

  private async openAgain(): Promise<string | null> {
    await this.host.ask("close_session", { sessionId: this.sessionId });
    const { leafId } = await this.host.ask("open_session", { sessionPath: this.path, readOnly: true });
    return leafId;
  }

  get isGone(): boolean {
    return this.misses >= MISSES;
  }

  listen(act: () => void): () => void {
    clearTimeout(this.linger);
    this.listeners.add(act);
    return () => {
      this.listeners.delete(act);
      if (this.listeners.size === 0) this.left(this);
    };
  }

  wake(): void {
    for (const act of this.listeners) act();
  }
}

export class Watches {
  private readonly host: ViewHost;
  private readonly byPath = new Map<string, OpenWatch>();
  /** Openings and closings happen one after the other, so that none closes what another has just opened. */
  private turn: Promise<unknown> = Promise.resolve();
  private looking: NodeJS.Timeout | undefined;

  constructor(host: ViewHost) {
    this.host = host;
  }

  /** Opens a session for one who follows it. Throws AskFailed. */
  open(sessionPath: string): Promise<Watch> {
    return this.inTurn(() => this.openNow(sessionPath));
  }

  private async openNow(sessionPath: string): Promise<Watch> {
    const known = this.byPath.get(sessionPath);
    if (known && !known.isGone) {
      if (known.listeners.size === 0) this.lingerOf(known);
      return known;
    }
    // The remaining listeners are about to be notified.
    if (known) await this.close(known, true);
    if (this.byPath.size >= MOST)
      throw new AskFailed("too_many", `${MOST} sessions are watched already. Close some of their pages.`);
    const { sessionId } = await this.host.ask("preview_session", { sessionPath, before: 0, after: 0, characters: 1 });
    // The server calls open sessions by their ids.
    if ([...this.byPath.values()].some((watch) => watch.sessionId === sessionId))
      throw new AskFailed("same_id", "Another file with the same session id is watched already. Close its page first.");
    const opened = await this.host.ask("open_session", { sessionPath, readOnly: true });
    const watch = new OpenWatch(this.host, sessionPath, opened, (left) => this.lingerOf(left));
    this.byPath.set(sessionPath, watch);
    this.lingerOf(watch);
    this.looking ??= setInterval(() => this.look(), LOOK).unref();
    return watch;
  }

  /** Notifies the watchers of a session of an event. */
  onSessionEvent(sessionId: string): void {
    for (const watch of this.byPath.values()) if (watch.sessionId === sessionId) watch.wake();
  }

  end(): void {
    clearInterval(this.looking);
    for (const watch of this.byPath.values()) clearTimeout(watch.linger);
  }

  private lingerOf(watch: OpenWatch): void {
    clearTimeout(watch.linger);
    const wait = watch.isGone ? 0 : LINGER;
    watch.linger = setTimeout(() => void this.inTurn(() => this.close(watch)), wait).unref();
  }

  private async close(watch: OpenWatch, inUse = false): Promise<void> {
    if (this.byPath.get(watch.path) !== watch || (watch.listeners.size > 0 && !inUse)) return;
    this.byPath.delete(watch.path);
    // It was only read: a session that cannot be closed has nothing to lose.
    await watch.ask("close_session").catch(() => undefined);
  }

  private look(): void {
    for (const watch of this.byPath.values()) {
      if (watch.file === null || watch.isGone) continue;
      watch.misses = this.host.isThere(watch.file) ? 0 : watch.misses + 1;
      if (watch.isGone) watch.wake();
    }
  }

  private inTurn<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.turn.then(act);
    this.turn = turn.catch(() => undefined);
    return turn;
  }
}
