/** The facts of a session that its records say, and its leaf. */

import { type JsonObject, toText, toTimestamp } from "../../../../core/foreign/messages.ts";
import type { AboutSession } from "../translator.ts";
import type { RecordPlace } from "./step.ts";

/** Most session ids that one file yields: a hostile file may have as many as it has records. */
const MOST_IDS = 1000;

export class ClaudeFacts {
  private readonly nativeIds = new Set<string>();
  private cwd: string | undefined;
  private started: string | undefined;

  note({ sessionId, cwd, timestamp }: JsonObject): void {
    const { nativeIds } = this;
    if (typeof sessionId === "string" && sessionId !== "" && nativeIds.size < MOST_IDS) nativeIds.add(sessionId);
    if (typeof cwd === "string" && cwd !== "") this.cwd ??= cwd;
    if (this.started === undefined && typeof timestamp === "string")
      this.started = toTimestamp(timestamp, "") || undefined;
  }

  /** `name`: that of the file; `agentName`: that of the subagent whose file it is. */
  about(name: string, agentName: string | undefined): AboutSession {
    const { nativeIds, cwd, started } = this;
    const own = nativeIds.has(name) ? name : nativeIds.values().next().value;
    if (agentName === undefined || own === undefined) return { nativeId: own, cwd, started };
    return { nativeId: `${own}/${agentName}`, nativeParentId: own, cwd, started };
  }
}

/** The record that Claude Code continues: the one that it names, or else the newest. */
export class ClaudeLeaf {
  private readonly places: ReadonlyMap<string, RecordPlace>;
  private named: string | null = null;
  private newest: { readonly at: string; readonly place: RecordPlace } | null = null;

  constructor(places: ReadonlyMap<string, RecordPlace>) {
    this.places = places;
  }

  get place(): RecordPlace | null {
    const named = this.named === null ? undefined : this.places.get(this.named);
    return named ?? this.newest?.place ?? null;
  }

  note(uuid: string, at: string): void {
    const place = this.places.get(uuid);
    if (place && (this.newest === null || at >= this.newest.at)) this.newest = { at, place };
  }

  noteNamed({ explicit, leafUuid }: JsonObject): void {
    if (explicit === true) this.named = toText(leafUuid) ?? null;
  }

  /** Notes a compaction: whatever was continued before it is compacted now. */
  noteCompaction(at?: string, place?: RecordPlace): void {
    if (at === undefined || !place) this.named = null;
    this.newest = at !== undefined && place ? { at, place } : null;
  }
}

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
