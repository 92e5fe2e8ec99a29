/** The ids of entries as JSON text. A command that needs no more loads nothing of what draws trees. */

import type { TextBlock } from "../../core/json/text-block.ts";
import type { Nodes } from "../../core/tree/nodes.ts";

const QUOTE = 0x22;

/** Writes the id of an entry, or null if there is none. */
export function writeId(out: TextBlock, nodes: Nodes, position: number): void {
  const packed = position < 0 ? -1 : nodes.packedId(position);
  if (packed < 0) out.json(position < 0 ? null : nodes.id(position));
  else {
    out.byte(QUOTE);
    out.hex(packed);
    out.byte(QUOTE);
  }
}
