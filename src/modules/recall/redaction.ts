/** Removes secrets from what leaves. Entries are read whole, because secrets are known by what is around them. */

import type { LineRedactor } from "../../core/redact/main.ts";
import { dropCutEnd } from "./texts.ts";

/** A stored entry, or a message in the shape of one. */
export type EntryRecord = Readonly<Record<string, unknown>>;

/** The redaction of one answer: the same secret has the same number in it. */
export class Redaction {
  private readonly redactor: LineRedactor | undefined;

  private constructor(redactor: LineRedactor | undefined) {
    this.redactor = redactor;
  }

  /** Makes a redaction; without `isOn`, one that changes nothing. */
  static async make(isOn: boolean, home: string | undefined): Promise<Redaction> {
    if (!isOn) return new Redaction(undefined);
    const { LineRedactor } = await import("../../core/redact/main.ts");
    const redactor = new LineRedactor();
    if (home !== undefined) redactor.texts.homes.learnHome(home);
    return new Redaction(redactor);
  }

  /** Returns a text without secrets. Of one that was cut somewhere, the last word is left out. */
  text(text: string, isCut = false): string {
    return this.redactor?.text(isCut ? dropCutEnd(text) : text) ?? text;
  }

  /**
   * Returns entries without secrets: those that one shows are removed from all of them. Of longer texts, only so many
   * characters are left.
   */
  entries<Entry extends EntryRecord>(entries: readonly Entry[], most: number): Entry[] {
    const { redactor } = this;
    const shorten = (_name: string, value: unknown): unknown =>
      typeof value === "string" && value.length > most ? dropCutEnd(value.slice(0, most)) : value;
    const texts = entries.map((entry) => JSON.stringify(entry, shorten));
    if (!redactor) return texts.map((text) => JSON.parse(text) as Entry);
    const lines = texts.map((text) => Buffer.from(text));
    const unjudged = new Map<string, number>();
    for (const line of lines) redactor.learn(line, unjudged);
    redactor.texts.knowAll();
    return lines.map((line) => JSON.parse(Buffer.from(redactor.redact(line, new Map())).toString("utf8")) as Entry);
  }
}
