/** A row of an answer. */

import type { Holder } from "../../../core/ports/lock.ts";
export type SqlRow = Readonly<Record<string, unknown>>;

/** The values of a statement, each with its number. */
export class SqlValues {
  readonly all: unknown[];

  /** `first`: values whose numbers are known. */
  constructor(...first: unknown[]) {
    this.all = first;
  }

  /** Adds a value. Returns its placeholder. */
  add(value: unknown): string {
    return `$${this.all.push(value)}`;
  }
}

/** Returns the expression that sends a double with full precision, also if the role's settings shorten its text. */
export function makeDoubleColumn(expression: string): string {
  return `pg_catalog.float8send(${expression})`;
}

/** Returns the numbers that were sent so, one behind the other. */
export function parseDoubles(sent: Uint8Array): number[] {
  const view = new DataView(sent.buffer, sent.byteOffset, sent.length);
  return Array.from({ length: sent.length / 8 }, (_, n) => view.getFloat64(8 * n));
}

/** Returns the expression for a time in milliseconds since 1970, which is the same in whatever style a role has dates. */
export function makeTimeColumn(expression: string): string {
  return `(extract(epoch from ${expression}) * 1000)::bigint`;
}

/** Columns of the owner of a session. */
export const HOLDER = "holder_name, holder_host, holder_since";

/** Returns the owner of a session, from a row with these columns. */
export function parseHolderRow({ holder_name, holder_host, holder_since }: Readonly<Record<string, unknown>>): Holder {
  const client = String(holder_name ?? "another server");
  const host = String(holder_host ?? "another machine");
  return { client, pid: 0, since: String(holder_since ?? ""), host };
}
