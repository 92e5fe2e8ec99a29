/** The progress of a search: one count of the files' bytes, though sessions are read first, and their texts indexed then. */

import type { Listed, Progress } from "../../core/ports/catalog.ts";

/** Bytes of the files that are read. */
interface BytesRead {
  readonly done: number;
  readonly total: number;
}

/** A callback for how many files were read, with the sessions in those since the last call, and the bytes of all. */
export type ScanProgress = (done: number, total: number, read: readonly Listed[], bytes: BytesRead) => void;

export class SearchProgress {
  private readonly report: Progress;
  /** Bytes of the steps that are over. */
  private before = 0;
  /** Bytes of the step that is under way. */
  private total = 0;
  /** Bytes of the files; each step goes through all of them. */
  private files = 0;
  /** The part of all steps that was shown. */
  private shown = 0;

  constructor(report: Progress) {
    this.report = report;
  }

  /** Notes the bytes read. New texts are indexed afterwards, which takes as long again. */
  read({ done, total }: BytesRead): void {
    this.total = total;
    this.notify(done, 2 * total);
  }

  /** Begins a step of indexing; `left` is the number of steps with this one. Returns the callback for it. */
  indexing(left: number): Progress {
    this.before += this.total;
    this.total = 0;
    return (done, total) => {
      this.total = total;
      this.notify(this.before + done, this.before + total * left);
    };
  }

  /** Reports, and never goes back: there may be more to index than was read. */
  private notify(done: number, total: number): void {
    this.files = Math.max(this.files, this.total);
    this.shown = Math.max(this.shown, total > 0 ? Math.min(1, done / total) : 0);
    this.report(Math.floor(this.shown * this.files), this.files);
  }
}
