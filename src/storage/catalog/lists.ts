/** Rows in the requested orders, updated with every row that changes. */

import type { Listed, ListRequest, Order } from "../../core/ports/catalog.ts";
import {
  compareKeyed,
  findIndexIn,
  getRequestKey,
  getSortKey,
  makeComparison,
  sliceAfterCursor,
} from "../../core/search/listing.ts";
import type { SessionRow } from "./session-row.ts";
import { filterInSlices, sortInSlices, visitInSlices } from "./slices.ts";

/** Maximum number of lists cached for their next pages. */
const MAX_PAGED = 8;

export class Lists {
  private readonly rows: ReadonlyMap<string, SessionRow>;
  private readonly ordered = new Map<Order, SessionRow[]>();
  /** Lists for the most recent requests, until something changes. */
  private readonly pages = new Map<string, readonly SessionRow[]>();
  /** Those of them that were asked for as a whole. */
  private readonly wholes = new WeakMap<readonly SessionRow[], readonly Listed[]>();

  constructor(rows: ReadonlyMap<string, SessionRow>) {
    this.rows = rows;
  }

  /** Records that a row was added, replaced or removed. */
  note(before: SessionRow | undefined, after: SessionRow | undefined): void {
    this.pages.clear();
    for (const [order, ordered] of this.ordered) {
      const compare = makeComparison(order);
      if (before) ordered.splice(findIndexIn(ordered, before, compare), 1);
      if (after) ordered.splice(findIndexIn(ordered, after, compare), 0, after);
    }
  }

  /** Forgets the orders that `note` updates, before so many changes that sorting again is faster. */
  forget(): void {
    this.pages.clear();
    this.ordered.clear();
  }

  async order(order: Order): Promise<SessionRow[]> {
    let ordered = this.ordered.get(order);
    if (!ordered) {
      // A key is made once for each: names are folded, and times parsed.
      const keyed = Array.from(this.rows.values(), (row) => ({ key: getSortKey(row, order), path: row.path, row }));
      ordered = (await sortInSlices(keyed, compareKeyed)).map(({ row }) => row);
      this.ordered.set(order, ordered);
    }
    return ordered;
  }

  /** Returns the sessions after a request's cursor, one beyond `most`, and how many fit. Throws cursor_expired. */
  async page(
    request: ListRequest,
    fits: (listed: Listed) => boolean,
  ): Promise<{ found: readonly Listed[]; total: number }> {
    const fitting = await this.fitting(request, fits);
    const { most } = request;
    const after = sliceAfterCursor(fitting, request);
    const found = most === undefined ? await this.whole(after) : after.slice(0, most + 1).map(({ listed }) => listed);
    return { found, total: fitting.length };
  }

  /** Returns all sessions that fit a request, in order. Cached from one page to the next. */
  private async fitting(request: ListRequest, fits: (listed: Listed) => boolean): Promise<readonly SessionRow[]> {
    const key = getRequestKey(request);
    let fitting = this.pages.get(key);
    if (!fitting) {
      fitting = await filterInSlices(await this.order(request.sort ?? "modified"), fits);
      if (this.pages.size >= MAX_PAGED) this.pages.clear();
      this.pages.set(key, fitting);
    }
    return fitting;
  }

  private async whole(rows: readonly SessionRow[]): Promise<readonly Listed[]> {
    const known = this.wholes.get(rows);
    if (known) return known;
    const listed: Listed[] = [];
    await visitInSlices(rows, (row) => listed.push(row.listed));
    this.wholes.set(rows, listed);
    return listed;
  }
}
