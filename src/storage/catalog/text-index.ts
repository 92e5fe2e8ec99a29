/** Updates the catalog's index of texts from the session files, a little at a time. */

import type { Progress } from "../../core/ports/catalog.ts";
import { findIdentifierParts } from "../../core/search/identifiers.ts";
import { getPathEnds } from "../../core/search/named-files.ts";
import { toToolKey } from "../../core/search/parts.ts";
import { fold } from "../../core/search/query.ts";
import { toPartMark } from "../../core/search/ranking.ts";
import { pause } from "../fs/chunked-io.ts";
import { readClock, readWork } from "../fs/clock.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { useAndClose } from "../fs/files.ts";
import type { CachedRows, CatalogOptions } from "./cached-rows.ts";
import type { CatalogFile, Indexed } from "./database.ts";
import { type IndexedText, readLogTexts, scanTexts } from "./documents.ts";
import { visitInSlices } from "./slices.ts";
import { hash } from "./summary.ts";
import type { NewText, TextKind } from "./text-table.ts";

/** Milliseconds without a pause while a search waits, and of work on reading for one transaction if none does. */
const SLICE = { waiting: 8, ahead: 4 };
/** Characters of texts written in one transaction while a search waits, and if none does. */
const AT_ONCE = { waiting: 2 << 20, ahead: 128 << 10 };
/** Characters of one file that are read and written without a pause, 20 ms. */
const OF_ONE = 1 << 20;
/** Factor by which more characters are read at once from a session that has to be opened. */
const OPENING = 4;
/** Characters whose work is that of one more text, however short. */
const TEXT = 200;
/** Characters of a token that finds a text without its words, about. */
const MARK = 16;
/** Ends of paths whose tokens are remembered. */
const MAX_MARKS = 20_000;
/** Files whose texts are written in one transaction. */
const FILES_AT_ONCE = 1000;
/** Maximum number of retries beyond one for each file. */
const MAX_AGAIN = 100_000;

/** Texts of one file to add to the index. */
interface Addition {
  /** The index state that they continue. */
  readonly known: Indexed;
  /** The offset or position from which on indexed texts are replaced. */
  readonly from: number;
  readonly texts: readonly NewText[];
  readonly state: string;
  readonly size: number;
}

export class TextIndex {
  private readonly options: CatalogOptions;
  private readonly kept: CachedRows;
  /** Tokens of ends of paths: calls name the same files again and again. */
  private readonly marks = new Map<string, string>();

  constructor(options: CatalogOptions, kept: CachedRows) {
    this.options = options;
    this.kept = kept;
  }

  /** Returns the paths whose texts are not indexed in their current state. */
  async missing(kind: TextKind): Promise<Set<string>> {
    const { rows, stale, indexed } = this.kept;
    const missing = stale.get(kind) ?? oldestFirst(rows);
    stale.set(kind, missing);
    await visitInSlices(missing, (path) => {
      const row = rows.get(path);
      if (!row || indexed.get(path)?.[kind] === row.state) missing.delete(path);
    });
    return missing;
  }

  /**
   * Indexes some of the missing texts in one short transaction, the latest first. Returns false when none are missing.
   * `patience`: the milliseconds to wait for other processes.
   */
  async indexMore(file: CatalogFile, kind: TextKind, patience?: number): Promise<boolean> {
    const todo = this.kept.stale.get(kind) ?? (await this.missing(kind));
    const additions: Addition[] = [];
    let size = 0;
    const since = readWork();
    for (const path of [...todo].reverse()) {
      const addition = this.additionOf(file, path, kind, AT_ONCE.ahead);
      if (addition === null) continue;
      if (!addition) {
        todo.delete(path);
        continue;
      }
      additions.push(addition);
      size += addition.size;
      if (size >= AT_ONCE.ahead || readWork() - since >= SLICE.ahead) break;
    }
    await this.add(file, kind, additions, todo, patience);
    return additions.length > 0;
  }

  /** Indexes all missing texts, and reports bytes. Returns false when other processes keep writing to the catalog. */
  async complete(file: CatalogFile, kind: TextKind, progress: Progress | undefined): Promise<boolean> {
    let todo = await this.missing(kind);
    const total = todo.size;
    const sizeOf = (path: string): number => this.kept.rows.get(path)?.stamp.size ?? 0;
    const bytesOf = (paths: Iterable<string>): number => [...paths].reduce((sum, path) => sum + sizeOf(path), 0);
    const bytes = progress ? bytesOf(todo) : 0;
    if (total > FILES_AT_ONCE) {
      // Processes that do this at the same time begin at different files and so share the work.
      const paths = [...todo];
      todo = new Set([...paths.splice((process.pid * 7919) % total), ...paths]);
      this.kept.stale.set(kind, todo);
    }
    const additions: Addition[] = [];
    let size = 0;
    let lastReport = 0;
    let since = readClock();
    let again = 0;
    // The loop reaches the paths that are added at the end.
    for (const path of todo) {
      const addition = this.additionOf(file, path, kind, OF_ONE);
      if (addition) {
        additions.push(addition);
        size += addition.size;
      } else todo.delete(path);
      if (addition === null) {
        // The row itself is missing because of another process: it is written and the file is retried.
        again++;
        this.kept.note(path, false);
        await this.kept.save(file);
        todo.delete(path);
        if (file.indexed(path)) todo.add(path);
      }
      if (size >= AT_ONCE.waiting || additions.length >= FILES_AT_ONCE || additions.length === todo.size) {
        again += await this.add(file, kind, additions.splice(0), todo);
        size = 0;
      }
      // Very long sessions take many rounds; more rounds than that mean that processes undo each other's work.
      if (again > total + MAX_AGAIN) return false;
      const done = total - Math.min(total, todo.size - additions.length);
      if (progress && total > 1 && done - lastReport >= Math.max(1, total / 100)) {
        lastReport = done;
        progress(Math.max(0, bytes - bytesOf(todo)), bytes);
      }
      if (readClock() - since < SLICE.waiting) continue;
      await pause();
      since = readClock();
    }
    return true;
  }

  /** Writes additions, and removes their files from `todo`; those with a rest go to its end, and are counted. */
  private async add(
    file: CatalogFile,
    kind: TextKind,
    additions: readonly Addition[],
    todo: Set<string>,
    patience?: number,
  ): Promise<number> {
    if (additions.length === 0) return 0;
    /** The written states; none for files that another process changed. */
    const written = new Map<string, Indexed>();
    await this.kept.write(
      file,
      "texts",
      async () => {
        written.clear();
        const isKnown = !file.isChangedElsewhere();
        await visitInSlices(additions, ({ known, from, texts, state }) => {
          const there = isKnown ? this.kept.indexed.get(known.path) : file.indexed(known.path);
          // Another process was faster.
          if (there?.id !== known.id || there[kind] !== known[kind]) return;
          file.texts.put(known.id, kind, known[kind] === "" ? undefined : from, texts);
          file.putState(known.id, kind, state);
          written.set(known.path, { ...known, [kind]: state });
        });
      },
      patience,
    );
    let unfinished = 0;
    for (const { known } of additions) {
      const { path } = known;
      const now = written.get(path) ?? file.indexed(path);
      if (now) this.kept.indexed.set(path, now);
      todo.delete(path);
      const row = this.kept.rows.get(path);
      if (!row || now?.[kind] === row.state) continue;
      todo.add(path);
      unfinished++;
    }
    return unfinished;
  }

  /**
   * Reads the missing texts of a file, up to about `atOnce` characters; null when the catalog lacks its row, undefined
   * when none are missing, or when it cannot be read: it is checked again when the folders are read next.
   */
  private additionOf(file: CatalogFile, path: string, kind: TextKind, atOnce: number): Addition | null | undefined {
    const row = this.kept.rows.get(path);
    if (!row) return undefined;
    const known = file.isChangedElsewhere() ? file.indexed(path) : this.kept.indexed.get(path);
    if (!known) return null;
    let state = row.state;
    if (known[kind] === state) return undefined;
    const [lifeThen, way, reach, sizeThen, part] = known[kind].split(" ");
    const { plain: isPlain, life, sizeBytes } = row;
    // Positions in a file of lines may change when it has grown, because damaged lines may be read differently.
    const isUnchanged = part === "part" && sizeThen === String(sizeBytes);
    const isSame = isPlain ? way === "p" : way === "l" && (isContainerName(path) || isUnchanged);
    const from = lifeThen === life && isSame ? Math.min(Number(reach), isPlain ? row.facts.base.reach : Infinity) : -1;
    const most = isPlain ? atOnce : atOnce * OPENING;
    const begin = Math.max(0, from);
    const wanted = { kinds: [kind], cwd: row.cwd };
    const texts: NewText[] = [];
    let size = 0;
    /** Returns false when there are enough: the texts from `past` on are left to the next round. */
    const addTexts = (found: readonly IndexedText[], past: number): boolean => {
      for (const { start, length, nth, role, time, entry, text, tool, files } of found) {
        const parts = findIdentifierParts(text);
        const marks =
          tool === undefined && parts.size === 0
            ? NO_MARKS
            : [...(tool === undefined ? [] : this.marksOf(tool, files)), ...Array.from(parts, toPartMark)];
        texts.push({ start, length, nth, role, time, entry, folded: fold(text), marks });
        size += TEXT + text.length + MARK * marks.length;
      }
      if (size < most) return true;
      state = isPlain ? `${life} p ${past} part` : `${life} l ${past} ${sizeBytes} part`;
      return false;
    };
    try {
      if (isPlain) scanTexts(this.options.disk, path, begin, sizeBytes, wanted, () => true, addTexts);
      else
        useAndClose(this.options.openLog(path), (log) => {
          for (const found of readLogTexts(log, wanted, begin)) if (!addTexts(found, found[0].start + 1)) return;
        });
    } catch {
      return undefined;
    }
    return { known, from, texts, state, size };
  }

  /** Returns the tokens that find a text by its tool, and by any end of the paths of its files. */
  private marksOf(tool: string, files: readonly string[]): readonly string[] {
    const marks = new Set([toToolMark(tool)]);
    for (const file of files)
      for (const end of getPathEnds(file)) {
        const mark = this.marks.get(end) ?? toFileMark(end);
        marks.add(mark);
        this.marks.set(end, mark);
      }
    if (this.marks.size > MAX_MARKS) this.marks.clear();
    return [...marks];
  }
}

/** Returns the paths of sessions, the latest last: those that change later are added there. */
function oldestFirst(rows: CachedRows["rows"]): Set<string> {
  const all = [...rows.values()].sort((a, b) => (a.modified ?? 0) - (b.modified ?? 0));
  return new Set(all.map(({ path }) => path));
}

const NO_MARKS: readonly string[] = [];

export function toToolMark(tool: string): string {
  return `_t${hash(toToolKey(tool))}`;
}

export function toFileMark(end: string): string {
  return `_f${hash(end)}`;
}
