/** Common parts of all generators of made-up files: lines, times, and a conversation that any format can hold. */

import type { Random } from "../random.ts";

export type Fields = Record<string, unknown>;

/** The time of the n-th record, a second after the one before. */
export function moment(n: number, first = Date.UTC(2026, 8, 14, 8)): string {
  return new Date(first + n * 1000).toISOString();
}

/** A file with a record on each line. */
export class LineWriter {
  readonly records: Fields[] = [];

  get lines(): string[] {
    return this.records.map((record) => JSON.stringify(record));
  }

  get text(): string {
    return `${this.lines.join("\n")}\n`;
  }
}

/** A writer of a conversation in some format. */
export interface Talker {
  /** A person says something. */
  ask(text: string): void;
  /** The model says something and calls tools, which give `output <id>`. */
  work(text: string, ids: readonly string[], random?: Random): void;
  /** The model says something, and its turn ends. */
  reply(text: string): void;
}

/** Writes so many turns with any number of steps; after each turn comes a record that is `odd` for the format. */
export function talk<Writer extends Talker>(
  w: Writer,
  random: Random,
  turns: number,
  odd: (w: Writer, turn: number) => void = () => {},
): Writer {
  let calls = 0;
  for (let turn = 0; turn < turns; turn++) {
    w.ask(`Turn ${turn} ${"x".repeat(random.int(200))}`);
    for (let step = random.int(3); step > 0; step--) {
      const ids = Array.from({ length: 1 + random.int(3) }, () => `call_${++calls}`);
      w.work(`Step ${step}`, ids, random);
    }
    w.reply(`Answer ${turn}`);
    odd(w, turn);
  }
  return w;
}
