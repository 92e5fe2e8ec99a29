/** The usage of one session as it is kept: figures in rows, and the models that these number. */

import type { ModelUsed } from "../../core/ports/catalog.ts";
import { AT, MANY_MODELS, ROW_LENGTH, sumCost } from "../../core/search/usage.ts";

/** The usage of one session. It consists of plain values, so that it can be stored and continued. */
export interface SessionUsage {
  readonly life: string;
  /** Offset, or in a container position, up to which all entries are counted. */
  readonly reach: number;
  /** True if all entries so far were copied from the fork's original. */
  readonly begins: boolean;
  /** The id of the first entry that may have a cost: forks have it from their original. */
  readonly first: string | null;
  /** Figures, in rows. */
  readonly rows: readonly number[];
  /** Those of the last line, if that has no line feed but is complete. */
  readonly tail: readonly number[];
  /** Lines that could not be read, among those whose figures were wanted. */
  readonly damaged: number;
  /** Cost of the session's own entries, if it is known. */
  readonly cost: number | undefined;
}

/** Characters of a name that are kept. */
const LONGEST_NAME = 200;

/** The models that were met, by their indexes in rows of figures. */
export class ModelNames {
  readonly all: ModelUsed[] = [{ provider: null, model: null }];
  private readonly indexes = new Map<string, number>();

  indexOf(provider: unknown, model: unknown): number {
    const key = `${shortName(provider) ?? ""}\n${shortName(model) ?? ""}`;
    const index = this.indexes.get(key);
    if (index !== undefined) return index;
    if (key === "\n" || this.all.length >= MANY_MODELS) return 0;
    this.indexes.set(key, this.all.length);
    return this.all.push({ provider: shortName(provider), model: shortName(model) }) - 1;
  }
}

function shortName(name: unknown): string | null {
  return typeof name === "string" && name !== "" ? name.slice(0, LONGEST_NAME) : null;
}

/** Returns usage as a text that names models and does not number them. */
export function writeUsageRecord(
  { life, reach, begins, first, rows, tail, damaged }: SessionUsage,
  models: ModelNames,
): string {
  const used = new Map<number, number>();
  const numbered = (list: readonly number[]): number[] =>
    list.map((value, i) => {
      if (i % ROW_LENGTH !== AT.model) return value;
      const index = used.get(value) ?? used.size;
      used.set(value, index);
      return index;
    });
  const plain = { life, reach, begins, first, rows: numbered(rows), tail: numbered(tail), damaged };
  const named = Array.from(used.keys(), (index) => [models.all[index].provider, models.all[index].model]);
  return JSON.stringify({ ...plain, models: named });
}

/** Returns the usage that a text holds; undefined when it holds none. */
export function readUsageRecord(text: string, models: ModelNames): SessionUsage | undefined {
  try {
    const { life, reach, begins, first, rows, tail, damaged, models: named } = JSON.parse(text);
    if (first === undefined) return undefined;
    const indexes = named.map(([provider, model]: unknown[]) => models.indexOf(provider, model));
    for (const list of [rows, tail])
      for (let at = AT.model; at < list.length; at += ROW_LENGTH) list[at] = indexes[list[at]];
    return { life, reach, begins, first, rows, tail, damaged, cost: sumCost(rows, tail) };
  } catch {
    return undefined;
  }
}
