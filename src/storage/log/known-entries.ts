/** The entries of a log as they are known, whatever its backend: nodes, damage, lines in place of stored bytes. */

import type { Damage } from "../../core/format/damage.ts";
import { addHead, HeadReader } from "../../core/format/node-reader.ts";
import { toBytes } from "../../core/json/json.ts";
import { Column, type Head, Nodes } from "../../core/tree/nodes.ts";

/** Heads of lines by their index, as far as they are known without reading the line. */
export type KnownHeads = readonly (Head | undefined)[];

/** Returns the line that stands in for a damaged entry: its head and `"damaged":true`. */
export function makePlaceholder(type: string, id: string, parentId: string | null): Uint8Array {
  return toBytes(JSON.stringify({ type, id, parentId, timestamp: new Date(0).toISOString(), damaged: true }));
}

/** Kinds of damage to bytes, independent of entries. */
const OF_BYTES: ReadonlySet<Damage["kind"]> = new Set(["newer_version", "bad_line", "torn_tail"] as const);

export class KnownEntries {
  readonly nodes = new Nodes();
  readonly heads = new HeadReader(this.nodes);
  readonly damage: Damage[] = [];
  /** True if the session is of a newer version: missing content of its entries is no damage. */
  isNewer = false;
  /** 1 for each entry whose bytes were found whole, for as long as nothing can have changed them. */
  readonly checked: Column<Uint8Array> = new Column(new Uint8Array(16));
  /** Lines that are not stored in this form: migrated, given an id, or waiting for the first append. */
  readonly overrides = new Map<number, Uint8Array>();
  /** Placeholders for entries whose bytes are damaged. Copies still have the bytes as they are. */
  readonly placeholders = new Map<number, Uint8Array>();

  /** Adds the node of a line written by us. Returns its position. */
  add(line: Uint8Array, head?: Head): number {
    return addHead(this.heads, this.nodes, line, head);
  }

  /** Returns the lines of entries up to a position that are not written, and the first of these at or after `from`. */
  unwrittenLines(from: number, to: number): { readonly first: number; readonly lines: readonly Uint8Array[] } {
    const { overrides } = this;
    let first = from;
    while (first < to && !overrides.has(first)) first++;
    return { first, lines: Array.from({ length: to - first }, (_, i) => overrides.get(first + i) as Uint8Array) };
  }

  forgetFrom(count: number): void {
    this.nodes.truncate(count);
    for (const lines of [this.overrides, this.placeholders])
      for (const position of lines.keys()) if (position >= count) lines.delete(position);
  }

  /** Reports damage that is not about one entry. `line` counts from 1. */
  report(kind: Damage["kind"], byteOffset: number, length: number, reason: string, salvaged = false, line = 0): void {
    this.addDamage({ kind, line, byteOffset, length, reason, salvaged });
  }

  addDamage(damage: Damage): void {
    if (!this.isNewer || OF_BYTES.has(damage.kind)) this.damage.push(damage);
  }

  /** Removes damage of these kinds, which a repair took out of the session. */
  forgetDamage(kinds: ReadonlySet<Damage["kind"]>): void {
    this.replaceDamage(this.damage.filter(({ kind }) => !kinds.has(kind)));
  }

  /** Makes this all the damage there is, however much: more than 120,000 arguments are too many for one call. */
  replaceDamage(damage: readonly Damage[]): void {
    this.damage.length = 0;
    for (const one of damage) this.damage.push(one);
  }

  /** Gives a damaged entry its placeholder. */
  replace(position: number): Uint8Array {
    const { nodes } = this;
    const parent = nodes.parent(position);
    const line = makePlaceholder(nodes.type(position), nodes.id(position), parent < 0 ? null : nodes.id(parent));
    nodes.lose(position);
    this.placeholders.set(position, line);
    return line;
  }
}
