/** Lines of a session that is on its way here, which are fetched by their positions and held in memory. */

import { HeadReader } from "../../core/format/head.ts";
import type { Fleet } from "../../core/ports/fleet.ts";
import type { Spine } from "./heads.ts";
import { incomplete } from "./transfer.ts";

/** Bytes of lines that are held, at most. */
const MOST_HELD = 32 << 20;
/** Entries that are fetched with one that is asked for alone: it is mostly part of a path. */
const WITH_ONE = 32;

export class HeldLines {
  private readonly fleet: Fleet;
  private readonly sessionId: string;
  private readonly spine: Spine;
  private readonly heads: HeadReader;
  private readonly held = new Map<number, Uint8Array>();
  private bytes = 0;

  constructor(fleet: Fleet, sessionId: string, spine: Spine) {
    this.fleet = fleet;
    this.sessionId = sessionId;
    this.spine = spine;
    this.heads = new HeadReader(spine.nodes);
  }

  get(position: number): Uint8Array | undefined {
    return this.held.get(position);
  }

  /** Returns those of some positions whose lines are not held. */
  lacking(positions: ArrayLike<number>): number[] {
    return Array.from(positions).filter((position) => !this.held.has(position));
  }

  /** Returns a position with those above it. */
  around(position: number): number[] {
    const found: number[] = [];
    for (let at = position; at >= 0 && found.length < WITH_ONE; at = this.spine.nodes.parent(at)) found.push(at);
    return found;
  }

  /** Fetches lines. Returns false where they are too many to be held. Throws storage_failed. */
  async fetch(positions: readonly number[]): Promise<boolean> {
    const { lengths } = this.spine;
    const wanted = [...new Set(this.lacking(positions))].sort((a, b) => a - b);
    const bytes = wanted.reduce((sum, position) => sum + lengths[position], 0);
    if (this.bytes + bytes > MOST_HELD) return false;
    const lines = wanted.length === 0 ? [] : await this.fleet.linesAt(this.sessionId, wanted);
    for (const [i, line] of lines.entries()) this.hold(wanted[i], line);
    return true;
  }

  /** Holds a line. Throws storage_failed if it is not the one that its node was made of. */
  private hold(position: number, line: Uint8Array): void {
    const { heads } = this;
    const { nodes, lengths } = this.spine;
    const { role, flags } = nodes.headOf(position);
    const isSame = (): boolean => heads.role === role && heads.flags === flags && nodes.isHeadOf(position, heads);
    // A member of the head may stand twice, which only the whole line shows.
    const isRead =
      (heads.readFast(line, 0, line.length) && isSame()) ||
      (heads.readAny(line, 0, line.length, () => "") === null && isSame());
    if (!isRead || line.length !== lengths[position]) throw incomplete(this.sessionId);
    if (!this.held.has(position)) this.bytes += line.length;
    this.held.set(position, new Uint8Array(line.buffer, line.byteOffset, line.length));
  }

  clear(): void {
    this.held.clear();
    this.bytes = 0;
  }
}
