/** Updates the catalog's index of texts from the session files, a little at a time. */

import type { Progress } from "../../core/ports/catalog.ts";
import { pause } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { closing } from "../fs/files.ts";
import type { CachedRows } from "./cached-rows.ts";
import type { CatalogFile, Indexed, NewText, TextKind } from "./database.ts";
import { type IndexedText, KIND_OF_ROLE, logTexts, scanTexts, textFrom } from "./documents.ts";
import type { CatalogOptions } from "./options.ts";
import { type SessionRow, stateOf } from "./rows.ts";

/** Milliseconds of work without a pause while a search waits, and of reading for one transaction while none does. */
const SLICE = { waiting: 8, ahead: 4 };
/** Characters of texts written in one transaction while a search waits, and while none does. */
const AT_ONCE = { waiting: 4 << 20, ahead: 128 << 10 };
/** Factor by which more characters are read at once from a session that has to be opened. */
const OPENING = 4;
/** Files whose texts are written in one transaction. */
const FILES_AT_ONCE = 400;
/** Maximum number of retries beyond one for each file. */
const MAX_AGAIN = 100_000;

/** Texts of one file to add to the index. */
interface Addition {
  readonly path: string;
  readonly isKnown: Indexed;
  /** The offset or position from which on indexed texts are replaced. */
  readonly from: number;
  readonly texts: readonly NewText[];
  readonly state: string;
  readonly size: number;
}

export class TextIndex {
  private readonly options: CatalogOptions;
  private readonly rows: ReadonlyMap<string, SessionRow>;
  private readonly kept: CachedRows;
  /** Paths whose texts may not be indexed in their current state; for a missing kind all must be compared. */
  private readonly stale = new Map<TextKind, Set<string>>();

  constructor(options: CatalogOptions, rows: ReadonlyMap<string, SessionRow>, kept: CachedRows) {
    this.options = options;
    this.rows = rows;
    this.kept = kept;
  }

  /** Records that a row was replaced or removed. */
  note(path: string): void {
    for (const paths of this.stale.values()) paths.add(path);
  }

  /** Forgets which files are indexed, so that all are compared again. */
  forget(): void {
    this.stale.clear();
  }

  isComplete(kind: TextKind): boolean {
    return this.missing(kind).length === 0;
  }

  private missing(kind: TextKind): string[] {
    let stale = this.stale.get(kind);
    if (!stale) {
      stale = new Set(this.rows.keys());
      this.stale.set(kind, stale);
    }
    for (const path of stale) {
      const row = this.rows.get(path);
      if (!row || this.kept.indexed.get(path)?.[kind] === stateOf(row)) stale.delete(path);
    }
    return [...stale];
  }

  /** Indexes some of the missing texts in one short transaction. Returns false when there were none to index. */
  async indexMore(file: CatalogFile, kind: TextKind): Promise<boolean> {
    const additions: Addition[] = [];
    let size = 0;
    const since = performance.now();
    for (const path of this.stale.get(kind) ?? this.missing(kind)) {
      const row = this.rows.get(path);
      const known = row && file.indexed(path);
      if (row && !known) continue;
      const addition =
        known && known[kind] !== stateOf(row) ? this.additionFor(path, row, kind, known, AT_ONCE.ahead) : undefined;
      // A file that cannot be read is checked again when the folders are read next.
      this.stale.get(kind)?.delete(path);
      if (!addition) continue;
      additions.push(addition);
      size += addition.size;
      if (size >= AT_ONCE.ahead || performance.now() - since >= SLICE.ahead) break;
    }
    for (const path of await this.add(file, kind, additions)) this.stale.get(kind)?.add(path);
    return additions.length > 0;
  }

  /** Indexes all missing texts. Returns false when other processes keep writing to the catalog. */
  async complete(file: CatalogFile, kind: TextKind, progress: Progress | undefined): Promise<boolean> {
    const todo = this.missing(kind);
    // Processes that do this at the same time begin at different files and so share the work.
    if (todo.length > FILES_AT_ONCE) todo.push(...todo.splice(0, (process.pid * 7919) % todo.length));
    const total = todo.length;
    let lastReport = 0;
    let since = performance.now();
    let additions: Addition[] = [];
    let size = 0;
    let again = 0;
    for (let next = 0; next < todo.length || additions.length > 0; ) {
      const path = todo[next++];
      const row = path === undefined ? undefined : this.rows.get(path);
      if (path !== undefined && row) {
        const known = file.indexed(path);
        if (!known) {
          // The row itself is missing because of another process: it is written and the file is retried.
          if (++again > total + MAX_AGAIN) return false;
          this.kept.note(path, false);
          await this.kept.save(file);
          if (file.indexed(path)) todo.push(path);
          continue;
        }
        const addition =
          known[kind] === stateOf(row) ? undefined : this.additionFor(path, row, kind, known, AT_ONCE.waiting);
        if (addition) {
          additions.push(addition);
          size += addition.size;
        } else this.kept.indexed.set(path, { ...known, [kind]: stateOf(row) });
      }
      if (size >= AT_ONCE.waiting || additions.length >= FILES_AT_ONCE || next >= todo.length) {
        const unfinished = await this.add(file, kind, additions);
        todo.push(...unfinished);
        again += unfinished.length;
        additions = [];
        size = 0;
      }
      // Very long sessions take many rounds; more rounds than that mean that processes undo each other's work.
      if (again > total + MAX_AGAIN) return false;
      const done = total - Math.min(total, todo.length - next);
      if (progress && total > 1 && done - lastReport >= Math.max(1, total / 100)) {
        lastReport = done;
        progress(done, total);
      }
      if (performance.now() - since < SLICE.waiting) continue;
      await pause();
      since = performance.now();
    }
    return true;
  }

  /** Writes additions to the index. Returns the files that are not indexed to their end. */
  private async add(file: CatalogFile, kind: TextKind, additions: readonly Addition[]): Promise<string[]> {
    if (additions.length === 0) return [];
    await this.kept.write(file, "texts", () => {
      for (const { path, isKnown: known, from, texts, state } of additions) {
        const there = file.indexed(path);
        // Another process was faster.
        if (there?.id !== known.id || there[kind] !== known[kind]) continue;
        file.putTexts(known.id, kind, from, texts, state);
      }
    });
    const unfinished: string[] = [];
    for (const { path } of additions) {
      const now = file.indexed(path);
      if (now) this.kept.indexed.set(path, now);
      const row = this.rows.get(path);
      if (row && now && now[kind] !== stateOf(row)) unfinished.push(path);
    }
    return unfinished;
  }

  /** Reads the missing texts of a file, up to about `atOnce` characters; undefined when it cannot be read now. */
  private additionFor(
    path: string,
    row: SessionRow,
    kind: TextKind,
    known: Indexed,
    atOnce: number,
  ): Addition | undefined {
    const [life, way, reach, sizeThen, part] = known[kind].split(" ");
    const isPlain = row.now.plain;
    // Positions in a file of lines may change when it has grown, because damaged lines may be read differently.
    const isUnchanged = part === "part" && sizeThen === String(row.size);
    const isSame = isPlain ? way === "p" : way === "l" && (isContainerName(path) || isUnchanged);
    const most = isPlain ? atOnce : atOnce * OPENING;
    const from = life === row.life && isSame ? Math.min(Number(reach), isPlain ? row.base.reach : Infinity) : -1;
    const texts: NewText[] = [];
    let size = 0;
    const addText = (text: IndexedText): void => {
      texts.push(textFrom(text));
      size += text.text.length;
    };
    let state = stateOf(row);
    try {
      if (isPlain)
        scanTexts(
          this.options.disk,
          path,
          Math.max(0, from),
          row.size,
          (role) => KIND_OF_ROLE[role] === kind,
          (text, lineEnd) => {
            addText(text);
            if (size < most) return true;
            // The rest of a very long session is left to the next round.
            state = `${row.life} p ${lineEnd} part`;
            return false;
          },
        );
      else
        closing(this.options.openLog(path), (log) => {
          for (const text of logTexts(log, (role) => KIND_OF_ROLE[role] === kind, Math.max(0, from))) {
            addText(text);
            if (size < most) continue;
            state = `${row.life} l ${text.start + 1} ${row.size} part`;
            return;
          }
        });
    } catch {
      // It was removed or may not be read, which is detected when the folders are read next.
      return undefined;
    }
    return { path, isKnown: known, from, texts, state, size };
  }
}
