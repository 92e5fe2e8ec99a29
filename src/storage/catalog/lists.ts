/** Rows in the requested orders, updated with every row that changes. */

import type { Listed, ListRequest, Order, Ordering } from "../../core/ports/catalog.ts";
import {
  BY_PATH,
  compareKeyed,
  findIndexIn,
  getRequestKey,
  sliceAfterCursor,
  toKeyed,
} from "../../core/search/listing.ts";
import type { SessionRow } from "./session-row.ts";
import { filterInSlices, sortInSlices, visitInSlices } from "./slices.ts";

/** Maximum number of lists cached for their next pages. */
const MAX_PAGED = 8;

/** All rows in an order. */
interface OrderedRows {
  readonly order: Order;
  readonly ordering: Ordering;
  readonly rows: SessionRow[];
}

export class Lists {
  private readonly rows: ReadonlyMap<string, SessionRow>;
  private readonly ordered = new Map<string, OrderedRows>();
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
    for (const { order, ordering, rows } of this.ordered.values()) {
      const indexOf = (row: SessionRow): number => {
        const place = toKeyed(row, order, ordering);
        return findIndexIn(rows, (other) => compareKeyed(toKeyed(other, order, ordering), place, ordering));
      };
      if (before) rows.splice(indexOf(before), 1);
      if (after) rows.splice(indexOf(after), 0, after);
    }
  }

  /** Forgets the orders that `note` updates, before so many changes that sorting again is faster. */
  forget(): void {
    this.pages.clear();
    this.ordered.clear();
  }

  async order(order: Order, ordering = BY_PATH): Promise<SessionRow[]> {
    const name = [...ordering.mark, order].join();
    const known = this.ordered.get(name);
    if (known) return known.rows;
    // A key is made once for each: names are folded, and times parsed.
    const keyed = Array.from(this.rows.values(), (row) => ({ ...toKeyed(row, order, ordering), row }));
    const rows = (await sortInSlices(keyed, (a, b) => compareKeyed(a, b, ordering))).map(({ row }) => row);
    this.ordered.set(name, { order, ordering, rows });
    return rows;
  }

  /** Returns all sessions that fit a request, in order. Cached from one page to the next. */
  async fitting(
    request: ListRequest,
    fits: (listed: Listed) => boolean,
    ordering: Ordering,
  ): Promise<readonly SessionRow[]> {
    const key = [...ordering.mark, getRequestKey(request)].join();
    let fitting = this.pages.get(key);
    if (!fitting) {
      fitting = await filterInSlices(await this.order(request.sort ?? "modified", ordering), fits);
      if (this.pages.size >= MAX_PAGED) this.pages.clear();
      this.pages.set(key, fitting);
    }
    return fitting;
  }

  /** Returns those of fitting sessions that are after a request's cursor, one beyond `most`. Throws cursor_expired. */
  async page(fitting: readonly SessionRow[], request: ListRequest, ordering: Ordering): Promise<readonly Listed[]> {
    const { most } = request;
    const after = sliceAfterCursor(fitting, request, ordering);
    return most === undefined ? this.whole(after) : after.slice(0, most + 1).map(({ listed }) => listed);
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
