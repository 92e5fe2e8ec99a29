/**
 * The shared leaf of a session: its position, the position that a failed commit restores, and the one that the next
 * opening would find. An opening finds the recorded leaf, else the one that the header names, else the one that the
 * entries give (session-format reference, section 5). Entries of heads do not move it.
 *
 * Between any two calls:
 * - The leaf is ROOT or the position of an entry, and only the methods of this class move it. If reading failed when a
 * log was opened, it is found when it is needed.
 * - It waits to be recorded exactly while an opening would find another one. That is computed and never set, so that no
 * write can forget it. A record counts for one number of entries; after a failure, its content is unknown.
 * - A failed commit puts it back to its position when nothing was waiting last.
 */

import { Failure } from "../failure.ts";
import { type Damage, makeEntryDamage } from "../format/damage.ts";
import type { SharedHolder } from "../ports/attach.ts";
import type { LeafMemory } from "../ports/stores.ts";
import { MISSING, ROOT } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";
import type { SessionEntries } from "./entries.ts";

/** Sentinel: the leaf is unknown and is computed on demand. */
export const UNSURE = -9;

const AMBIGUOUS =
  "The file ends with a label or name on another branch; the conversation's own last entry is the leaf.";

const NO_PARENT =
  "The entry has no parentId, so that a path of its own begins there, and the model sees no earlier message.";

/** The leaf that the store has for the first `count` entries; UNSURE while that is not durable. */
interface LeafRecord {
  readonly count: number;
  leaf: number;
}

/** The leaf that the first `count` entries of a tree give by themselves. */
interface LeafOfEntries {
  readonly tree: Tree;
  count: number;
  leaf: number;
  /** The last entry that is neither a label nor a name, or ROOT. */
  decisive: number;
  /** The last entry, if it is a label or a name on another branch; else ROOT. */
  ambiguous: number;
}

export class LeafTracker {
  private readonly entries: SessionEntries;
  private readonly store: LeafMemory | undefined;
  /** True if a leaf that the entries do not give outlives the session: it is recorded, and written as a marker. */
  private readonly keeps: boolean;
  private at = ROOT;
  private durable = ROOT;
  private recorded: LeafRecord | undefined;
  private given: LeafOfEntries | undefined;
  damage: readonly Damage[] = [];
  /** The failure of the last commit that failed, another object with each: it took back entries of others, too. */
  failed: { readonly failure: unknown } | undefined;
  /** The process that keeps the leaf, if another one does the writes to the session. */
  holder: SharedHolder | undefined;

  constructor(entries: SessionEntries, store: LeafMemory | undefined, keeps: boolean) {
    this.entries = entries;
    this.store = store;
    this.keeps = keeps;
    this.open();
  }

  get current(): number {
    if (this.at === UNSURE) this.open();
    // Its entry may have been undone.
    if (this.at >= this.entries.log.nodes.count) this.at = this.ofEntries().leaf;
    return this.at;
  }

  /** True if `commit` would have nothing to wait for. */
  get isDurable(): boolean {
    return this.entries.areDurable && !this.isDue;
  }

  /** The reported leaf: a failed commit goes back to it. */
  get durableId(): string | null {
    return this.entries.idOrNull(this.durable === UNSURE ? this.current : this.durable);
  }

  /** The id of the leaf; undefined for one that is not found yet, and that the disk may not give any more. */
  get foundId(): string | null | undefined {
    return this.at === UNSURE ? undefined : this.entries.idOrNull(this.current);
  }

  get isInFile(): boolean {
    return this.current === this.inFile;
  }

  /** True if an opening finds this leaf, or if the disk gives no answer about that now: the record stays then. */
  get mayBeLeft(): boolean {
    return unlessUnread(() => this.isInFile);
  }

  /** True if `isDurable`, or if the disk gives no answer about that now: the present state can be read then. */
  get maySettle(): boolean {
    return this.entries.areDurable && unlessUnread(() => this.isDurable);
  }

  /** True if the entries are durable and the disk gives no answer about the leaf: a commit fails at once. */
  get isUnread(): boolean {
    return this.maySettle && unlessUnread(() => !this.isDurable);
  }

  /** True if an opening would find another leaf, and this one can be recorded. */
  private get isDue(): boolean {
    if (!this.keeps || this.store === undefined || this.holder || this.at === UNSURE) return false;
    const { recorded } = this;
    const { log } = this.entries;
    const found = recorded?.count === log.nodes.count ? recorded.leaf : this.inFile;
    if (this.current === found) return false;
    return log.persisted && log.readOnly === null && log.lock.holder === null;
  }

  // --- moves ---------------------------------------------------------------------------------------------------

  /** Finds the leaf of an opened log. It stays at `keptId` if that is among the entries. */
  open(keptId?: string | null): void {
    const { log } = this.entries;
    // The next calls read: if one fails, no position of an earlier log may be left.
    const kept = this.leafPositionOfId(keptId);
    this.at = this.durable = kept ?? UNSURE;
    this.damage = [];
    const recorded = this.leafPositionOfId(this.store?.recall(log));
    this.recorded = recorded === undefined ? undefined : { count: log.nodes.count, leaf: recorded };
    const known = kept ?? recorded ?? this.inHeader;
    const given = known === undefined ? this.ofEntries() : undefined;
    this.at = known ?? (given as LeafOfEntries).leaf;
    this.durable = this.at;
    // The meaning of entries of a newer version is unknown.
    if (given && log.readOnly?.name !== "unsupported_version") this.damage = this.doubtsAbout(given);
  }

  /** Returns why the leaf that the entries give may be another one than the person expects. */
  private doubtsAbout({ leaf, decisive, ambiguous }: LeafOfEntries): Damage[] {
    const { tree } = this.entries;
    const { nodes } = tree;
    const doubts: Damage[] = [];
    if (ambiguous !== ROOT) doubts.push(makeEntryDamage(nodes.id(ambiguous), "ambiguous_leaf", AMBIGUOUS));
    let newest = nodes.count - 1;
    while (newest >= 0 && (!isConversation(nodes.type(newest)) || this.isOfHead(newest))) newest--;
    // A leaf marker means that the person went there.
    const isNote = decisive >= 0 && !isConversation(nodes.type(decisive)) && !nodes.isMarker(decisive);
    const isHidden = isNote && newest >= 0 && !tree.isAncestor(newest, leaf);
    if (isHidden) {
      const reason = `The session ends with an entry of type ${nodes.type(decisive)} on another branch, and is there, as in Pi; a newer conversation is on the branch that ends with ${nodes.id(newest)}.`;
      doubts.push(makeEntryDamage(nodes.id(newest), "newer_branch", reason));
    }
    const { parents } = nodes.columns();
    // If no other entry begins a path, the first is the root of all: no walk is needed.
    const hasOneRoot = parents.indexOf(ROOT, 1) < 0 && parents.indexOf(MISSING, 1) < 0;
    if (leaf <= 0 || hasOneRoot || tree.isAncestor(0, leaf)) return doubts;
    let root = leaf;
    while (nodes.parent(root) >= 0) root = nodes.parent(root);
    if (nodes.parentIdOf(root) === null && this.entries.entry(root).parentId === undefined)
      doubts.push(makeEntryDamage(nodes.id(root), "no_parent", NO_PARENT));
    return doubts;
  }

  moveTo(position: number): void {
    this.at = position;
    if (this.isDurable) this.durable = position;
  }

  /** Moves to entries of other programs if they continue the leaf. */
  advance(positions: readonly number[]): void {
    const { nodes } = this.entries.log;
    const isDurable = this.current === this.durable;
    for (const position of positions)
      if (nodes.parent(position) === this.at && !nodes.isMarker(position) && !this.isOfHead(position))
        this.at = position;
    if (isDurable || this.isDurable) this.durable = this.at;
  }

  /** Moves to the leaf that an opening would find. */
  goToFile(): void {
    this.moveTo(this.inFile);
  }

  /**
   * Makes the leaf durable with all entries; the caller must call `undone` when that fails. Changes while the leaf is
   * recorded become durable with it, so that `begins` is called again: its last call covers all until then.
   */
  async commit(begins: () => void = () => {}): Promise<void> {
    const { failed } = this;
    const { log } = this.entries;
    let leaf: number;
    let record: LeafRecord | undefined;
    do {
      begins();
      leaf = this.current;
      // The record comes first: it is of use only with the present entries, so a failure of either undoes both.
      record = this.isDue ? await this.record(leaf) : undefined;
      if (this.failed && this.failed !== failed) throw this.failed.failure;
    } while (record && (record.count !== log.nodes.count || this.current !== leaf));
    await log.commit();
    if (record) record.leaf = leaf;
    // An entry that was durable at once may have come in between.
    this.durable = this.isDurable ? this.current : leaf;
  }

  /** Records the leaf if it waits for that, as far as the disk allows. */
  async keep(): Promise<void> {
    if (!this.isDue) return;
    const leaf = this.current;
    try {
      (await this.record(leaf)).leaf = leaf;
    } catch {
      // The next commit tries again; until then a crash leads back to the old position.
    }
  }

  private async record(leaf: number): Promise<LeafRecord> {
    const record = { count: this.entries.log.nodes.count, leaf: UNSURE };
    this.recorded = record;
    await this.store?.record(this.entries.log, this.entries.idOrNull(leaf));
    return record;
  }

  /** Goes back to the durable leaf, after the log has gone back to its durable entries. */
  undone(): void {
    this.unsettle();
    this.at = this.durable;
  }

  /** Notes that a write failed: it may have left another file, without a record. */
  unsettle(): void {
    if (this.recorded) this.recorded = { count: this.recorded.count, leaf: UNSURE };
  }

  /** Removes the record, which the file makes needless. */
  forget(): void {
    this.store?.forget(this.entries.log);
    this.recorded = undefined;
  }

  // --- the leaf in the file ------------------------------------------------------------------------------------

  /** Returns whether an entry needs a leaf marker before it: a label or a name that the file would not put there. */
  needsMarkerBefore(type: string, parentId: string | null | undefined): boolean {
    if (!this.keeps || !isMetadata(type) || !this.entries.log.persisted) return false;
    const place =
      parentId === undefined ? this.current : parentId === null ? ROOT : this.entries.log.nodes.position(parentId);
    return place !== this.ofEntries().leaf;
  }

  /** Returns whether an entry of a head needs a marker of the shared leaf before it: the entries do not give that. */
  get needsMarkerBeforeHead(): boolean {
    return this.keeps && this.entries.log.persisted && this.current !== this.ofEntries().leaf;
  }

  /** Returns whether a head wrote an entry. Another process that writes here reports that itself. */
  private isOfHead(position: number): boolean {
    return this.holder === undefined && this.entries.headOf(position) !== undefined;
  }

  /** The leaf that an opening would find without a record of ours. */
  private get inFile(): number {
    return this.inHeader ?? this.ofEntries().leaf;
  }

  /** The leaf that the header names, until our first write removes it from there. */
  private get inHeader(): number | undefined {
    const { leafId } = this.entries.log.header;
    return this.leafPositionOfId(leafId === "" ? null : leafId);
  }

  private leafPositionOfId(id: string | null | undefined): number | undefined {
    if (id === undefined) return undefined;
    const position = id === null ? ROOT : this.entries.log.nodes.position(id);
    return id !== null && position < 0 ? undefined : this.leafPositionOf(position);
  }

  /** Returns the position, or the parent's if it is a leaf marker that no entry continues. */
  private leafPositionOf(position: number): number {
    if (position < 0 || this.entries.tree.isVisible(position)) return position;
    return Math.max(this.entries.log.nodes.parent(position), ROOT);
  }

  /** Notes entries that were just written, so that they need not be read: all of them through a head, or none. */
  wrote(first: number, past: number, isOfHead: boolean): void {
    const { given } = this;
    // An unknown leaf is read when it is needed; without a kept leaf, that is never.
    if (!this.keeps || given?.tree !== this.entries.tree || given.count !== first) return;
    for (; given.count < past; given.count++) if (!isOfHead) this.apply(given, given.count);
  }

  /** Applies rule 3 to the entries that came since it was applied last, or to the last decisive one and those after it. */
  private ofEntries(): LeafOfEntries {
    const { tree } = this.entries;
    const { nodes } = tree;
    if (this.given?.tree !== tree) {
      const given: LeafOfEntries = { tree, count: nodes.count, leaf: ROOT, decisive: ROOT, ambiguous: ROOT };
      const last: number[] = [];
      for (const [position, head] of this.entries.backwards(nodes.count)) {
        if (head === undefined) last.push(position);
        if (head === undefined && !isMetadata(nodes.type(position))) break;
      }
      for (const position of last.reverse()) this.apply(given, position);
      this.given = given;
    }
    const { given } = this;
    for (; given.count < nodes.count; given.count++)
      if (this.entries.headOf(given.count) === undefined) this.apply(given, given.count);
    return given;
  }

  /** Applies rule 3: labels and names move the leaf only if they continue the conversation. */
  private apply(given: LeafOfEntries, position: number): void {
    const { tree } = given;
    const { nodes } = tree;
    given.ambiguous = ROOT;
    if (!isMetadata(nodes.type(position))) {
      given.decisive = position;
      given.leaf = this.leafPositionOf(position);
    } else if (given.decisive === ROOT || nodes.parent(position) === given.leaf) given.leaf = position;
    else {
      const target = this.leafPositionOf(given.decisive);
      let at = position;
      while (at >= 0 && at !== target && isMetadata(nodes.type(at))) at = nodes.parent(at);
      if (at !== target && !tree.isAncestor(target, at)) given.ambiguous = position;
      given.leaf = given.ambiguous === ROOT ? position : target;
    }
  }
}

/** Returns an answer, or true if the data for it cannot be read. */
function unlessUnread(answer: () => boolean): boolean {
  try {
    return answer();
  } catch (error) {
    if (error instanceof Failure) return true;
    throw error;
  }
}

/** Returns whether entries of a type are a part of the conversation, and not a note of a program. */
function isConversation(type: string): boolean {
  return type === "message" || type === "custom_message" || type === "branch_summary" || type === "compaction";
}

/** Returns whether entries of a type are about the conversation and not part of it. */
function isMetadata(type: string): boolean {
  return type === "label" || type === "session_info";
}
