/**
 * The one gate to the sessions: every tool, resource and completion asks through it. What lies in an excluded folder does
 * not exist for them.
 */

import { resolve, sep } from "node:path";
import { AGENTS } from "../../core/foreign/agents.ts";
import { isPath } from "../../core/search/named.ts";
import type { CommandResult, RecallHit, RecallSession } from "../../server/recall-module.ts";
import { CallMistake } from "./params.ts";
import { Redaction } from "./redaction.ts";
import { quote } from "./texts.ts";
import type { RecallWorld } from "./world.ts";

export interface SessionList {
  readonly sessions: readonly RecallSession[];
  readonly total: number;
  readonly nextCursor?: string;
  readonly behind: number;
  /** Sentences about what could not be read. */
  readonly notRead: readonly string[];
}

export interface FoundTexts {
  readonly hits: readonly RecallHit[];
  readonly nextCursor?: string;
  readonly begins?: string;
  readonly behind: number;
  readonly notRead: readonly string[];
}

/** Milliseconds of reading for one call, whatever it asks. */
const READING_MS = 300;
/** Sessions that are asked for at once where all are looked at. */
const AT_ONCE = 1000;
/** Sessions that fit a name and are listed. */
const MOST_CANDIDATES = 5;
const OUR_OWN = "pi";
/** Ids have digits, but for a beginning of one in hexadecimal. */
const LIKE_AN_ID = /\d|^[a-f]+$|^ses_/i;
/** Failures that are about one source of several. */
const OF_A_SOURCE = /^(?:storage_failed|not_a_session|corrupt|path_outside_root)$/;

export class Library {
  readonly world: RecallWorld;
  private readonly folders: readonly string[];
  private readonly hidden = new Map<string, boolean>();
  private readonly open = new Map<string, { uses: number; readonly opened: Promise<CommandResult> }>();

  /** The end of the reading for the present call, in milliseconds of the process. */
  private readonly until: number;

  constructor(world: RecallWorld) {
    this.world = world;
    this.folders = [...new Set(world.excluded.flatMap((folder) => [resolve(folder), world.realPath(folder)]))];
    this.until = performance.now() + READING_MS;
  }

  /** Returns the same library for another call, which has its own time to read. */
  forCall(): Library {
    return Object.assign(Object.create(this), { until: performance.now() + READING_MS });
  }

  /** Milliseconds of reading that are left to the present call. */
  private get within(): number {
    return Math.max(1, Math.ceil(this.until - performance.now()));
  }

  redaction(): Promise<Redaction> {
    return Redaction.make(this.world.redacts, this.world.home);
  }

  /** Returns whether a path lies in an excluded folder. */
  private isHidden(path: string | null): boolean {
    if (path === null || path === "" || this.folders.length === 0) return false;
    let hidden = this.hidden.get(path);
    if (hidden === undefined) {
      const ways = [resolve(path), this.world.realPath(path)];
      hidden = this.folders.some((folder) => ways.some((way) => way === folder || way.startsWith(`${folder}${sep}`)));
      if (this.hidden.size > 20_000) this.hidden.clear();
      this.hidden.set(path, hidden);
    }
    return hidden;
  }

  private isShown({ sessionPath, cwd }: { readonly sessionPath: string; readonly cwd: string | null }): boolean {
    return !this.isHidden(cwd) && !this.isHidden(sessionPath);
  }

  /** Lists sessions of all agents unless some are named. A source that fails costs only its own sessions. */
  async list(params: Readonly<Record<string, unknown>> = {}): Promise<SessionList> {
    const page = await this.listAll(params);
    return { ...page, sessions: page.sessions.filter((session) => this.isShown(session)) };
  }

  /** Lists sessions, also those that are kept out. */
  private async listAll(params: Readonly<Record<string, unknown>>): Promise<SessionList> {
    const { agents = "all", ...rest } = params;
    const [page, failed] = await this.ofSources(agents, (names) =>
      this.world.ask("list_sessions", { here: true, within: this.within, ...rest, agents: names }),
    );
    return {
      sessions: page.flatMap((one) => one.sessions as RecallSession[]),
      total: page.reduce((sum, one) => sum + one.total, 0),
      nextCursor: page.length === 1 ? page[0].nextCursor : undefined,
      behind: page.reduce((sum, one) => sum + (one.behind ?? 0), 0),
      notRead: [...failed, ...page.flatMap((one) => this.sentences(one.notRead))],
    };
  }

  /** Yields every session that fits, page by page. */
  async *each(params: Readonly<Record<string, unknown>> = {}): AsyncGenerator<RecallSession> {
    for await (const session of this.eachOfAll(params)) if (this.isShown(session)) yield session;
  }

  /** Yields them, also those that are kept out. */
  private async *eachOfAll(params: Readonly<Record<string, unknown>>): AsyncGenerator<RecallSession> {
    let cursor: string | undefined;
    do {
      const page = await this.listAll({ ...params, cursor, limit: AT_ONCE });
      yield* page.sessions;
      cursor = page.nextCursor;
    } while (cursor !== undefined);
  }

  /** Counts the sessions that fit. */
  async count(params: Readonly<Record<string, unknown>> = {}): Promise<SessionList> {
    return this.countLatest({ ...params, limit: 1 });
  }

  /** Counts the sessions that fit, and returns so many of the latest. */
  async countLatest(params: Readonly<Record<string, unknown>>): Promise<SessionList> {
    const one = await this.list(params);
    if (this.folders.length === 0) return one;
    let total = 0;
    const { limit: _limit, holders: _holders, ...scope } = params;
    for await (const _ of this.each(scope)) total++;
    return { ...one, total };
  }

  async search(params: Readonly<Record<string, unknown>>): Promise<FoundTexts> {
    const { agents = "all", ...rest } = params;
    const [pages, failed] = await this.ofSources(agents, (names) =>
      this.world.ask("search_sessions", {
        here: true,
        within: this.within,
        ...rest,
        redact: this.world.redacts,
        agents: names,
      }),
    );
    const hidden = await this.hiddenIds();
    const hits = pages
      .flatMap((one) => one.hits as RecallHit[])
      .filter((hit) => this.isShown(hit) && !hidden.has(hit.inheritedFrom?.sessionId ?? ""));
    const [only] = pages.length === 1 ? pages : [];
    if (!only) hits.sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
    return {
      hits,
      nextCursor: only?.nextCursor,
      begins: only?.begins,
      behind: pages.reduce((sum, one) => sum + (one.behind ?? 0), 0),
      notRead: [...failed, ...pages.flatMap((one) => this.sentences(one.notRead))],
    };
  }

  /** Returns the ids of the sessions that are kept out: forks elsewhere have copies of their entries. */
  private async hiddenIds(): Promise<ReadonlySet<string>> {
    const ids = new Set<string>();
    if (this.folders.length === 0) return ids;
    for (const archived of [false, true])
      for await (const session of this.eachOfAll({ agents: [OUR_OWN], archived }))
        if (!this.isShown(session)) ids.add(session.sessionId);
    return ids;
  }

  /** Asks about all sources at once, and one by one where that fails. Returns the results, and a sentence for each that failed. */
  private async ofSources(
    agents: unknown,
    ask: (agents: unknown) => Promise<CommandResult>,
  ): Promise<[CommandResult[], string[]]> {
    try {
      return [[await ask(agents)], []];
    } catch (error) {
      const names = agents === "all" ? [OUR_OWN, ...AGENTS] : (agents as readonly string[]);
      if (!OF_A_SOURCE.test(nameOf(error)) || names.length < 2) throw error;
      const results: CommandResult[] = [];
      const failed: string[] = [];
      for (const name of names) {
        try {
          results.push(await ask([name]));
        } catch (one) {
          failed.push(`${name} (${nameOf(one)})`);
        }
      }
      if (results.length === 0) throw error;
      return [results, failed];
    }
  }

  private sentences(files: readonly { path: string; agent?: string }[] | undefined): string[] {
    const counts = new Map<string, number>();
    for (const { path, agent = OUR_OWN } of files ?? [])
      if (!this.isHidden(path)) counts.set(agent, (counts.get(agent) ?? 0) + 1);
    return Array.from(counts, ([agent, count]) => `${agent} (${count} ${count === 1 ? "file" : "files"} unreadable)`);
  }

  /** Returns the session that a word names: by its path, id, the beginning of one, or name. Throws CallMistake. */
  async find(word: string): Promise<RecallSession> {
    const found = await this.candidates(word);
    if (found.length === 0)
      throw new CallMistake(`No session is called ${quote(word, 80)}. Ask recent or find for those that are.`);
    if (found.length === 1) return found[0];
    const shown = found.slice(0, MOST_CANDIDATES).map(({ shortId }) => shortId);
    throw new CallMistake(
      `${found.length} sessions are called ${quote(word, 80)}: ${shown.join(", ")}${found.length > shown.length ? " and more" : ""}. Name one of them.`,
    );
  }

  /** Returns the sessions that a word may name. */
  async candidates(word: string): Promise<readonly RecallSession[]> {
    const text = word.trim();
    if (text === "" || text.includes("\0")) return [];
    if (isPath(text)) return this.atPath(text);
    const isId = /^[\w.:-]{4,}$/.test(text) && LIKE_AN_ID.test(text);
    for (const archived of [false, true]) {
      const near: RecallSession[] = [];
      const wanted = isId ? { query: text } : { name: text };
      for await (const session of this.each({ ...wanted, headerOnly: true, archived })) near.push(session);
      const ways: ((session: RecallSession) => boolean)[] = [
        ({ sessionId }) => sessionId === text,
        ({ sessionId }) => isId && sessionId.startsWith(text),
        ({ name }) => name?.trim().toLowerCase() === text.toLowerCase(),
      ];
      for (const way of ways) {
        const found = near.filter(way);
        if (found.length > 0)
          return found.every(({ sessionId }) => sessionId === found[0].sessionId) ? [found[0]] : found;
      }
    }
    // Other agents have ids of their own for their sessions.
    return isId && text.length >= 8 ? this.opened({ sessionId: text }) : [];
  }

  private async atPath(text: string): Promise<readonly RecallSession[]> {
    const { home, cwd } = this.world;
    const path = resolve(cwd, home !== undefined && /^~[/\\]/.test(text) ? `${home}${text.slice(1)}` : text);
    return this.isHidden(path) ? [] : this.opened({ sessionPath: path });
  }

  /** Returns the listed session that these params open. A file that no list has is not shown. */
  private async opened(where: Readonly<Record<string, unknown>>): Promise<readonly RecallSession[]> {
    let opened: CommandResult;
    try {
      opened = await this.world.ask("open_session", { ...where, readOnly: true });
    } catch {
      return [];
    }
    const { sessionId, sessionFile } = opened;
    // One that a tool reads meanwhile stays open.
    if (!this.open.has(sessionFile)) await this.world.ask("close_session", { sessionId }).catch(() => {});
    for (const archived of [false, true])
      for await (const session of this.each({ query: sessionId, headerOnly: true, archived }))
        if (session.sessionId === sessionId) return [session];
    return [];
  }

  /** Opens a session for the time of `look`, which gets its id for other commands. */
  async read<T>({ sessionPath }: RecallSession, look: (sessionId: string) => Promise<T>): Promise<T> {
    const { open, world } = this;
    const held = open.get(sessionPath) ?? {
      uses: 0,
      opened: world.ask("open_session", { sessionPath, readOnly: true }),
    };
    open.set(sessionPath, held);
    held.uses++;
    try {
      const { sessionId } = await held.opened;
      return await look(sessionId);
    } finally {
      if (--held.uses === 0) {
        open.delete(sessionPath);
        const opened = await held.opened.catch(() => undefined);
        if (opened) await world.ask("close_session", { sessionId: opened.sessionId }).catch(() => {});
      }
    }
  }

  /** Returns the id of the entry that a word names: by its id, the beginning of one, or its label. Throws CallMistake. */
  async findEntry(sessionId: string, word: string): Promise<string> {
    try {
      await this.world.ask("get_entry", { sessionId, entryId: word, images: "omit" });
      return word;
    } catch (error) {
      if (nameOf(error) !== "entry_not_found") throw error;
    }
    const found = new Set<string>();
    for await (const { id, label } of this.nodes(sessionId)) {
      if (label === word) return id;
      if (word.length >= 4 && id.startsWith(word)) found.add(id);
    }
    if (found.size === 1) return [...found][0];
    const why = found.size > 1 ? `${found.size} entries begin with` : "The session has no entry";
    throw new CallMistake(`${why} ${quote(word, 60)}. Ask tree for its branch points and ends.`);
  }

  /** Yields the nodes of an open session, in the order of the file. */
  async *nodes(sessionId: string): AsyncGenerator<CommandResult> {
    let cursor: string | undefined;
    do {
      const page = await this.world.ask("get_tree", { sessionId, format: "flat", limit: 5000, cursor });
      yield* page.nodes;
      cursor = page.nextCursor;
    } while (cursor !== undefined);
  }

  /** Returns the relatives of a session that may be shown, parents before their forks. */
  async family(
    sessionId: string,
  ): Promise<readonly { readonly listed: RecallSession; readonly forkedAtEntryId?: string }[]> {
    const { nodes } = await this.world.ask("get_session_family", { sessionId, here: true });
    const wanted = new Map<string, CommandResult>(nodes.map((node: CommandResult) => [node.sessionPath, node]));
    const found = new Map<string, RecallSession>();
    for (const archived of [false, true]) {
      if (found.size === wanted.size) break;
      for await (const session of this.each({ headerOnly: true, archived }))
        if (wanted.has(session.sessionPath)) found.set(session.sessionPath, session);
    }
    return [...wanted].flatMap(([path, { forkedAtEntryId }]) => {
      const listed = found.get(path);
      return listed ? [{ listed, forkedAtEntryId }] : [];
    });
  }
}

/** Returns the name of a failure of a command. */
export function nameOf(error: unknown): string {
  const { error: shape, name } = error as { error?: { data?: { name?: string } }; name?: string };
  return shape?.data?.name ?? name ?? "failed";
}

/** Splits a reference into the session and the entry that it names. */
export function splitRef(ref: string): { readonly session: string; readonly entry: string | undefined } {
  const text = ref.trim().replace(/^pi-session:\/\//, "");
  const at = text.lastIndexOf("#");
  return at <= 0
    ? { session: text, entry: undefined }
    : { session: text.slice(0, at), entry: text.slice(at + 1) || undefined };
}
