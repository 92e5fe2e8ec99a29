/**
 * Draws a session's branches: a row for each entry, children below their parent, each branch that leaves a path
 * indented. Nothing is recursive, because sessions are as deep as they are long.
 */

import type { OutputStyle } from "./terminal/page.ts";
import { column, cutTo, inert, oneLine, widthOf } from "./terminal/text.ts";
import type { Result } from "./verb.ts";

/** A node as get_tree returns it when flat. */
export type FlatNode = Result;

const NONE = -1;

export class Branches {
  readonly nodes: readonly FlatNode[];
  readonly leafId: string | null;
  /** Index of the node in each row. */
  readonly order: Int32Array;
  /** The row of the leaf; -1 when the leaf is before the first entry. */
  readonly leafRow: number;
  /** For each row, the first row of its run. A run is a series of entries without a branch between them. */
  private readonly runs: Int32Array;
  /** For the first row of a run, the first row of the run that it branches off from; -1 for none. */
  private readonly above: Int32Array;
  /** For the first row of a run, two bits: 1 when it is one of several branches, 2 when it is the last of them. */
  private readonly kinds: Uint8Array;
  private readonly active: Uint8Array;
  private readonly idWidth: number;

  constructor(nodes: readonly FlatNode[], leafId: string | null) {
    this.nodes = nodes;
    this.leafId = leafId;
    const size = nodes.length;
    const indices = new Map<string, number>();
    for (let i = 0; i < size; i++) indices.set(nodes[i].id, i);
    const parents = new Int32Array(size);
    for (let i = 0; i < size; i++) parents[i] = indices.get(nodes[i].parentId) ?? NONE;
    // Lists of children in file order, built backwards because each child is put at the front of its list.
    const first = new Int32Array(size + 1).fill(NONE);
    const next = new Int32Array(size).fill(NONE);
    for (let i = size - 1; i >= 0; i--) {
      const parent = parents[i] === NONE ? size : parents[i];
      next[i] = first[parent];
      first[parent] = i;
    }
    this.order = new Int32Array(size);
    this.runs = new Int32Array(size);
    this.above = new Int32Array(size).fill(NONE);
    this.kinds = new Uint8Array(size);
    // Nodes that wait for a row, and the row of each node that has one.
    const stack: number[] = [];
    const rowOf = new Int32Array(size).fill(NONE);
    let rows = 0;
    const put = (parent: number): void => {
      const from = stack.length;
      for (let child = first[parent]; child !== NONE; child = next[child]) stack.push(child);
      for (let a = from, b = stack.length - 1; a < b; a++, b--) [stack[a], stack[b]] = [stack[b], stack[a]];
    };
    put(size);
    while (stack.length > 0) {
      const node = stack.pop() as number;
      const row = rows++;
      this.order[row] = node;
      rowOf[node] = row;
      const parent = parents[node];
      const siblings = parent === NONE ? size : parent;
      const isOnly = first[siblings] === node && next[node] === NONE;
      const parentRun = parent === NONE ? NONE : this.runs[rowOf[parent]];
      if (isOnly && parent !== NONE) this.runs[row] = parentRun;
      else {
        this.runs[row] = row;
        this.above[row] = parentRun;
        this.kinds[row] = isOnly ? 0 : next[node] === NONE ? 3 : 1;
      }
      put(node);
    }
    this.active = new Uint8Array(size);
    const leaf = leafId === null ? NONE : (indices.get(leafId) ?? NONE);
    this.leafRow = leaf === NONE ? NONE : rowOf[leaf];
    for (let at = leaf; at !== NONE && this.active[rowOf[at]] === 0; at = parents[at]) this.active[rowOf[at]] = 1;
    let longest = 0;
    for (const { id } of nodes) longest = Math.max(longest, id.length);
    this.idWidth = Math.min(longest, 12);
  }

  get rows(): number {
    return this.order.length;
  }

  node(row: number): FlatNode {
    return this.nodes[this.order[row]];
  }

  /** Returns the lines that lead to a row, in at most `width` columns: of deep branches only the last. */
  lines(row: number, width: number): string {
    const most = Math.max(1, Math.floor(width / LEVEL));
    const drawn: string[] = [];
    let run = this.runs[row];
    let isCut = false;
    if (this.kinds[run] !== 0) {
      const isLast = (this.kinds[run] & 2) !== 0;
      drawn.push(run === row ? (isLast ? "└─ " : "├─ ") : isLast ? "   " : "│  ");
    }
    for (run = this.above[run]; run !== NONE; run = this.above[run]) {
      if (this.kinds[run] === 0) continue;
      if (drawn.length === most) {
        isCut = true;
        break;
      }
      drawn.push((this.kinds[run] & 2) !== 0 ? "   " : "│  ");
    }
    // An ellipsis at the beginning shows that there are more levels than are drawn.
    if (isCut) drawn[drawn.length - 1] = "…  ";
    return drawn.reverse().join("");
  }

  /** Returns the text of a row, as one line of a page. */
  text(row: number, page: OutputStyle): string {
    const { paint } = page;
    const node = this.node(row);
    const isLeaf = row === this.leafRow;
    const isActive = this.active[row] === 1;
    const mark = isLeaf ? "*" : " ";
    // A very narrow page has no room for ids.
    const isNarrow = page.width < this.idWidth + 20;
    const id = isNarrow ? "" : `${column(inert(node.id), Math.max(this.idWidth, node.id.length))}  `;
    const space = Math.max(0, page.width - 2 - widthOf(id));
    const lines = this.lines(row, Math.floor(space / 2));
    const label = labelText(node, Math.min(34, Math.floor(space * 0.45)));
    const line = oneLine(node.preview ?? "");
    const kind = kindOf(node);
    const text = cutTo(line === "" ? kind : `${kind}: ${line}`, Math.max(0, space - lines.length - widthOf(label)));
    const shown = text.startsWith(`${kind}:`)
      ? `${paint(COLOURS[kind] ?? "dim", `${kind}:`)}${paint(isActive ? "bold" : "plain", text.slice(kind.length + 1))}`
      : paint(COLOURS[kind] ?? "dim", text);
    return `${paint("green", mark)} ${paint("dim", id)}${paint("dim", lines)}${shown}${paint("yellow", label)}`;
  }
}

function labelText({ label }: FlatNode, width: number): string {
  const text = label === undefined ? "" : cutTo(oneLine(label), width - 3);
  return text === "" ? "" : ` [${text}]`;
}

/** Columns of one indent. */
const LEVEL = 3;

const KINDS: Readonly<Record<string, string>> = {
  toolResult: "result",
  bashExecution: "bash",
  model_change: "model",
  thinking_level_change: "thinking",
  branch_summary: "summary",
  session_info: "name",
  custom_message: "custom",
  context_edit: "edit",
};

const COLOURS: Readonly<Record<string, "cyan" | "green" | "magenta" | "blue">> = {
  user: "cyan",
  assistant: "green",
  compaction: "magenta",
  summary: "magenta",
  custom: "blue",
};

/** Returns the name of an entry's kind in its row: the role of a message, the type of anything else. */
function kindOf({ type, role }: FlatNode): string {
  const name = type === "message" && typeof role === "string" ? role : type;
  return KINDS[name] ?? inert(name);
}
