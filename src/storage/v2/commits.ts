/** Makes appended entries durable: frames, then index rows, then checkpoints (seed 003); else removes them. */

import { makeTimestamp } from "../../core/ports/env.ts";
import { getPointerFile, segmentFile } from "../fs/container-paths.ts";
import { removeQuietly } from "../fs/disk.ts";
import { removeTree } from "../fs/staging.ts";
import { makeOtherProgramFailure } from "../log/failures.ts";
import { Checkpoints } from "./checkpoints.ts";
import type { Container } from "./container.ts";
import type { CheckpointReason } from "./documents.ts";
import { EMPTY_END, type FrameExtent, type Tail } from "./extents.ts";
import { IndexWriter } from "./index-writer.ts";
import { SegmentWriter } from "./segment-writer.ts";
import type { Segment } from "./segments.ts";
import type { Snapshots } from "./snapshots.ts";
import { StateMachine } from "./states.ts";

/** The commits of one process with entries that are not durable yet, by the identity of their containers. */
export type Writers = Map<string, ContainerCommits>;

export class ContainerCommits {
  readonly frames: SegmentWriter;
  readonly index: IndexWriter;
  readonly checkpoints: Checkpoints;
  /** State of the store on its way from one durable state to the next (seed 003). */
  readonly states: StateMachine;
  private readonly container: Container;
  private readonly snapshots: Snapshots;
  private readonly writers: Writers;

  constructor(container: Container, snapshots: Snapshots, writers: Writers) {
    this.container = container;
    this.snapshots = snapshots;
    this.writers = writers;
    this.frames = new SegmentWriter(container);
    this.index = new IndexWriter(container);
    this.checkpoints = new Checkpoints(container, snapshots);
    this.states = new StateMachine(() => makeTimestamp(container.options.env));
  }

  /** Records that frames were written that are not durable. While a commit runs, the commit moves the state on. */
  noteWritten(): void {
    const { states, writers } = this;
    writers.set(this.container.identity, this);
    if (!this.container.state.isCommitting && states.state !== "DIRTY") states.to("DIRTY", "entries were appended");
  }

  /** Makes a checkpoint if one is due. Where an append is durable at once, this is all that a commit has to do. */
  async checkpointInPassing(): Promise<void> {
    if (!this.isCheckpointDue) return;
    const { nodes } = this.container.entries;
    const { count } = nodes;
    return this.container.state.commits?.run(
      count,
      () => this.checkpointIfDue(),
      () => {
        if (!this.container.reader.isClosed && nodes.count > count)
          this.states.through(["DIRTY", "SEGMENT_SEALED", "INDEXED"], "entries were appended meanwhile");
      },
    );
  }

  async makeDurable(requireCurrent: () => void): Promise<void> {
    const { frames, index, states } = this;
    const { state, end, entries } = this.container;
    const { count } = entries.nodes;
    const { tail } = end;
    const rows = end.rows.length;
    await frames.sync();
    // This includes the names of new segments: no row may name a frame that a loss of power takes away (INV-003).
    await state.unsynced.sync();
    requireCurrent();
    this.requireFrames(tail);
    states.to("SEGMENT_SEALED", "the frames are on the medium");
    // Another log of this process may have made all of it durable meanwhile.
    if (state.durableCount < count) {
      const pending = end.rows.slice(0, rows);
      const bytes = index.write(pending);
      if (bytes.length > 0) await index.sync();
      await state.unsynced.sync();
      requireCurrent();
      if (state.durableCount < count) {
        index.accept(bytes, pending);
        this.markDurable(count, tail);
      }
    }
    states.to("INDEXED", "the index rows are on the medium");
    await this.checkpointIfDue();
  }

  /** Moves the state on after a commit: entries that were appended while it ran are for the next. */
  committed(): void {
    const { states } = this;
    const { state, reader } = this.container;
    if (state.readOnly?.name === "corrupt") return states.fail("entries are damaged or lost");
    if (!reader.isClosed && !this.container.isDurable && states.state !== "DIRTY" && states.state !== "FAILED")
      states.to("DIRTY", "entries were appended meanwhile");
  }

  /**
   * Throws storage_failed unless the frames are there and the container has its name. No row may name a missing frame
   * (INV-003), and durable data in a container that lost its name is lost too.
   */
  requireFrames({ segmentSeq, segmentSize }: Tail = this.container.end.tail): void {
    const { container } = this;
    const { disk, folder, end, state } = container;
    const isCut = segmentSeq > 0 && disk.info(segmentFile(folder, segmentSeq)).size < segmentSize;
    if (!isCut && container.hasItsHeader()) return;
    // The next refresh finds another session, or the rest of this one.
    end.seen = undefined;
    state.isConfirmed = false;
    throw makeOtherProgramFailure(isCut ? "truncated the session's files" : "replaced this session with another one");
  }

  private markDurable(count: number, tail: Tail): void {
    const { container } = this;
    container.markDurable(count, tail);
    container.state.created = null;
    if (count === container.entries.nodes.count) this.writers.delete(container.identity);
  }

  /** Makes everything durable now: where that means to survive no more than the process, or where another log waits. */
  markAllDurable(): void {
    const { entries, isDurable, state } = this.container;
    if (isDurable) return;
    try {
      this.writeRows(entries.nodes.count);
    } catch (error) {
      throw state.commits?.abandon(error) ?? error;
    }
  }

  /** Writes the rows of all frames, those of the first `count` entries, and records that these are durable. */
  writeRows(count: number): void {
    const { frames, index, states } = this;
    const { state, end } = this.container;
    const { isSynced, isCommitting, unsynced } = state;
    const { tail } = end;
    frames.commitNow(isSynced, isCommitting);
    if (isSynced) unsynced.syncNow();
    this.requireFrames(tail);
    if (!isCommitting) states.to("SEGMENT_SEALED", "the frames are written");
    const rows = [...end.rows];
    const bytes = index.write(rows);
    if (isSynced) {
      if (bytes.length > 0) index.syncNow();
      unsynced.syncNow();
    } else unsynced.clear();
    index.accept(bytes, rows);
    this.markDurable(count, tail);
    if (!isCommitting) states.to("INDEXED", "the index rows are written");
  }

  /** Makes entries durable that were found after the index, and adds their rows. A failure discards nothing. */
  settle(): void {
    const { container, frames, index } = this;
    const { state, end, entries } = container;
    const rows = [...end.rows];
    frames.noteFound(end.base?.tail.segmentSeq ?? 1);
    if (state.isSynced) {
      frames.syncFound();
      state.unsynced.syncNow();
    } else state.unsynced.clear();
    this.requireFrames(end.tail);
    const bytes = index.write(rows);
    if (state.isSynced && rows.length > 0) index.syncNow();
    index.accept(bytes, rows);
    container.markDurable(entries.nodes.count);
  }

  /**
   * Makes everything durable instead of removing it if another program wrote behind it: cutting our bytes off would remove
   * the others, and remaining bytes are read again. Returns whether it did.
   */
  keepAll(): boolean {
    const { container, index, states } = this;
    const { end, entries, state } = container;
    if (!this.isFollowed) return false;
    index.leave();
    this.markDurable(entries.nodes.count, end.tail);
    end.seen = undefined;
    state.isConfirmed = false;
    if (states.state === "SEGMENT_SEALED") states.to("FAILED", "another program wrote behind the entries");
    if (states.state === "FAILED") states.to("DIRTY", "all entries are kept");
    return true;
  }

  /** True if the bytes that are not durable are there as this process wrote them, and another program wrote behind them. */
  private get isFollowed(): boolean {
    const { container, index } = this;
    const { end, entries, extents, segments, state } = container;
    const { segmentSeq, segmentSize } = end.tail;
    try {
      if (end.tornTail || !container.hasItsHeader()) return false;
      const isLonger = segments
        .list()
        .some(({ seq, size }) => seq > segmentSeq || (seq === segmentSeq && size > segmentSize));
      if (!isLonger && !index.isFollowed) return false;
      segments.forgetAll();
      for (let position = state.durableCount; position < entries.nodes.count; position++)
        if (container.crcAt(position) !== extents.at(position).crc) return false;
      return true;
    } catch {
      return false;
    }
  }

  /** Returns whether the files, at their present place, have none of the discarded entries left. */
  rollBack(): boolean {
    const { frames, index, states, writers } = this;
    const { entries, extents, end, state, identity } = this.container;
    const { durableCount, created } = state;
    const { count } = entries.nodes;
    const indexed = count - end.rows.length;
    const first = Math.max(durableCount, indexed);
    const given = Array.from({ length: count - first }, (_, i) => extents.at(first + i));
    entries.forgetFrom(durableCount);
    writers.delete(identity);
    if (states.state === "SEGMENT_SEALED") states.to("FAILED", "the index could not be written");
    let isUndone: boolean;
    if (created) isUndone = this.unmake(created);
    else {
      end.rows.length = first - indexed;
      end.tail = end.durable.tail;
      // No row may name a missing frame: the frames stay as long as their rows do.
      const isNamed = !index.cut();
      frames.cutTo(end.tail, (segment, start) => this.holdsFrames(given, segment, start), isNamed);
      isUndone = end.tornTail === null ? !frames.isElsewhere : frames.isDeleted;
    }
    if (states.state === "FAILED") states.to("DIRTY", "entries that were not durable are dropped");
    return isUndone;
  }

  /** Returns whether a segment holds, from `from` on, these frames and nothing else. */
  private holdsFrames(frames: readonly FrameExtent[], { seq, size }: Segment, from: number): boolean {
    let end = from;
    for (const { segmentSeq, start, length, crc } of frames) {
      if (segmentSeq !== seq) continue;
      if (start !== end || end + length > size) return false;
      if (this.container.segments.crc(seq, start, length) !== crc) return false;
      end += length;
    }
    return end === size;
  }

  /** Removes the container of a session whose first entries did not become durable. Its earlier lines wait again. */
  private unmake(held: readonly Uint8Array[]): boolean {
    const { container } = this;
    const { disk, entries, end, state, file } = container;
    const { isDeleted } = this.frames;
    this.closeFiles();
    // Another program may have put its own container there.
    const { isOursStill } = this;
    if (isOursStill) {
      removeQuietly(disk, getPointerFile(file));
      removeTree(disk, file);
    }
    state.lock.release();
    container.key = undefined;
    state.isConfirmed = false;
    for (const [position, line] of held.entries()) entries.overrides.set(position, line);
    state.created = null;
    end.seen = undefined;
    end.rows = [];
    end.goTo(EMPTY_END);
    container.markDurable(state.durableCount);
    state.unsynced.clear();
    this.checkpoints.manifestDue = false;
    return isOursStill ? !this.isOursStill : isDeleted;
  }

  private get isOursStill(): boolean {
    try {
      return this.container.hasItsHeader(this.container.file);
    } catch {
      return false;
    }
  }

  /** Makes a checkpoint of entries that are all durable. */
  async checkpointNow(reason: "manual" | "pre_migration"): Promise<void> {
    const { states } = this;
    if (states.state !== "INDEXED") {
      if (states.state !== "DIRTY") states.to("DIRTY", "a checkpoint was asked for");
      states.through(["SEGMENT_SEALED", "INDEXED"], "no frame was added");
    }
    await this.checkpoint(reason);
  }

  /** Makes a checkpoint, and extends the index snapshot. */
  private async checkpoint(reason: CheckpointReason): Promise<void> {
    await this.checkpoints.make(reason);
    this.states.to("CHECKPOINTED", "the checkpoint is on the medium");
    this.snapshots.grow();
  }

  /** True if a commit has to make a checkpoint, although the append is durable already. */
  get isCheckpointDue(): boolean {
    const { isSynced, isCommitting } = this.container.state;
    if (isSynced || isCommitting || this.states.state !== "INDEXED" || this.container.reader.isClosed) return false;
    return this.checkpoints.isDue;
  }

  private async checkpointIfDue(): Promise<void> {
    try {
      if (this.checkpoints.isFarFrom(this.checkpoints.last().tail)) await this.checkpoint("periodic");
    } catch (error) {
      // The entries are durable without it; the next commit tries again.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  closeFiles(): void {
    this.frames.close();
    this.index.close();
    this.container.segments.forgetAll();
  }
}
