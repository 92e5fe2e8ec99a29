/** Counters of a manifest, updated as entries become durable, so that writing one costs the same at any size. */

import { Column, type Nodes } from "../../core/tree/nodes.ts";
import { type Manifest, SOUND, type SourceFormat, sealManifest } from "./documents.ts";
import type { Tail } from "./extents.ts";

/** Members of a manifest that cannot be computed from frames. */
export interface Counted {
  readonly sessionId: string;
  readonly sourceFormat: SourceFormat;
  readonly createdAt: string;
}

export class ManifestCounters {
  private readonly nodes: Nodes;
  private count = 0;
  private messages = 0;
  private compactions = 0;
  private branches = 0;
  /** Number of children of each node, as far as it matters: none, one, more. */
  private readonly children = new Column(new Uint8Array(16));

  constructor(nodes: Nodes) {
    this.nodes = nodes;
  }

  /**
   * Returns the manifest of a store that ends at `tail`. Its entries must be durable, because counting them cannot be
   * undone.
   */
  manifest(tail: Tail, values: Counted & { readonly updatedAt: string }): Manifest {
    const { nodes } = this;
    for (; this.count < tail.entrySeq; this.count++) {
      const position = this.count;
      this.children.set(position, this.children.values[position] ?? 0);
      if (nodes.isType(position, "message")) this.messages++;
      else if (nodes.isType(position, "compaction")) this.compactions++;
      const parent = nodes.parent(position);
      if (parent < 0) continue;
      const before = this.children.values[parent] ?? 0;
      if (before === 1) this.branches++;
      if (before < 2) this.children.set(parent, before + 1);
    }
    return sealManifest({
      ...values,
      head: {
        segmentSeq: tail.segmentSeq,
        entrySeq: tail.entrySeq,
        entryId: tail.entrySeq === 0 ? "" : nodes.id(tail.entrySeq - 1),
      },
      counters: {
        entriesTotal: tail.entrySeq,
        messagesTotal: this.messages,
        branchesTotal: this.branches,
        compactionsTotal: this.compactions,
        bytesTotal: tail.bytesTotal,
      },
      segmentCount: tail.segmentCount,
      chainHash: tail.chainHash,
      lastCrc32c: tail.lastCrc,
      invariants: { ...SOUND, parentLinksClosed: nodes.missingParent.size === 0 },
    });
  }
}
