/** The title of a session of Claude Code: a person's own wins over a generated one. */

import { toText } from "../../../../core/foreign/messages.ts";

/** Types of records with a title, the ones that count more first, with the member that has it. */
const TITLES: readonly (readonly [type: string, member: string])[] = [
  ["custom-title", "customTitle"],
  ["agent-name", "agentName"],
  ["ai-title", "aiTitle"],
  ["summary", "summary"],
];

export class Titles {
  private readonly known = new Map<string, string>();
  private shown: string | undefined;

  /**
   * Takes a record with a title. Returns the session's title if that changes, null if it does not, and undefined for
   * any other record. `isHere`: returns whether a record with a uuid is in this file.
   */
  take(
    type: string,
    record: Readonly<Record<string, unknown>>,
    isHere: (uuid: string) => boolean,
  ): string | null | undefined {
    const member = TITLES.find(([name]) => name === type)?.[1];
    const title = member === undefined ? undefined : toText(record[member]);
    if (title === undefined) return undefined;
    // Older versions wrote the summaries of other sessions into a new one's file.
    if (type === "summary" && !isHere(toText(record.leafUuid) ?? "")) return undefined;
    this.known.set(type, title.replace(/[\r\n]+/g, " ").trim());
    const best = TITLES.map(([name]) => this.known.get(name)).find((one) => one !== undefined && one !== "");
    if (best === undefined || best === this.shown) return null;
    this.shown = best;
    return best;
  }
}
