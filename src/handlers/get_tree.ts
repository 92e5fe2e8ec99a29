import * as z from "zod";
import { preview } from "../core/format/message.ts";
import { bytesOf } from "../core/json/json.ts";
import { gathered, Raw } from "../core/json/raw.ts";
import type { Session } from "../core/session/session.ts";
import type { Nodes } from "../core/tree/nodes.ts";
import type { Label, Tree } from "../core/tree/tree.ts";
import { briefBody, briefMembers, briefOf, briefText, callsText } from "./shared/brief.ts";
import { command } from "./shared/command.ts";
import { atMost, indexOf, pageEnd } from "./shared/page.ts";
import { cursor, entry, limit, nextCursor, stored } from "./shared/shapes.ts";

const flatNode = z.object({
  id: z.string(),
  parentId: z.string().nullable(),
  type: z.string(),
  timestamp: z.string().optional(),
  preview: z
    .string()
    .optional()
    .describe("the beginning of its text; if it has none, in brackets the tools it calls: `[bash: npm test]`"),
  ...briefMembers,
  label: z.string().optional(),
  childCount: z.number().int(),
});

const nestedNode = z.looseObject({
  entry,
  children: z.array(z.unknown()).describe("nodes like this one"),
  label: z.string().optional(),
  labelTimestamp: z.string().optional(),
});

export default command({
  name: "get_tree",
  summary: "All branches: as a flat list in file order, or nested as Pi returns it.",
  effect: "read",
  params: {
    format: z
      .enum(["flat", "nested"])
      .optional()
      .describe("flat by default; nested by default in Pi's dialect. Many parsers fail on deeply nested JSON"),
    cursor,
    limit,
  },
  result: z.object({
    nodes: stored(z.array(flatNode)).optional().describe("when flat"),
    tree: stored(z.array(nestedNode)).optional().describe("when nested"),
    leafId: z.string().nullable(),
    nextCursor,
  }),
  failures: ["cursor_expired"],
  example: {
    params: { format: "flat" },
    result: {
      nodes: [{ id: "a1b2c3d4", parentId: null, type: "message", role: "user", preview: "Hello", childCount: 0 }],
      leafId: "a1b2c3d4",
    },
  },
  run(context, params) {
    const { session } = context;
    const format = params.format ?? (context.host.dialectName === "pi" ? "nested" : "flat");
    if (format === "nested") {
      // The text is made when the reply leaves, but must show the tree as it is now.
      const positions = session.tree.depthFirst();
      const labels = new Map(session.tree.labels);
      return { tree: new Raw(() => gathered(nestedTexts(session, positions, labels))), leafId: session.leafId };
    }
    const most = atMost(context, params.limit);
    const found: number[] = [];
    for (const position of session.visible(indexOf(params.cursor, session.log.nodes.count))) {
      found.push(position);
      if (found.length > most) break;
    }
    const texts: string[] = [];
    const all = flatTexts(session, found);
    const make = (): string => {
      const text = all.next().value as string;
      texts.push(text);
      return text;
    };
    // Where replies are limited, nodes are made only as long as there is room for them.
    const past = pageEnd(context, params.limit, found.length, 0, () => bytesOf(make()));
    while (texts.length < past) make();
    texts.length = past;
    return {
      nodes: Raw.of(bytesOf(`[${texts.join(",")}]`)),
      leafId: session.leafId,
      nextCursor: past < found.length ? String(found[past]) : undefined,
    };
  },
});

/** Bytes of the texts of a long entry that are parsed: a preview shows no more of them. */
const SEEN = 4096;

/** A flat node as JSON text, without the members that can change while its entry stays the same. */
interface NodeText {
  /** The parent when the text was made: it changes when a lost parent is bridged, or when the parent comes later. */
  readonly parent: number;
  readonly text: string;
}

/** Nodes of one session that are remembered. */
const MAX_REMEMBERED = 10_000;
/**
 * Texts of the nodes of each session, valid as long as no entry was lost or cut. A host asks for its page again
 * whenever the session has changed, and all but a few of its nodes are as they were: a page of 1,000 takes 2 ms with
 * these texts, and 18 ms when their entries are parsed.
 */
const memories = new WeakMap<Nodes, { losses: number; cuts: number; nodeTexts: Map<number, NodeText> }>();

function earlierTexts(nodes: Nodes): Map<number, NodeText> {
  const { losses, cuts } = nodes;
  const known = memories.get(nodes);
  if (known?.losses === losses && known.cuts === cuts && known.nodeTexts.size < MAX_REMEMBERED) return known.nodeTexts;
  const nodeTexts = new Map<number, NodeText>();
  memories.set(nodes, { losses, cuts, nodeTexts });
  return nodeTexts;
}

/** Yields the nodes of these entries as JSON texts. Lazy. */
function* flatTexts(session: Session, positions: readonly number[]): Generator<string> {
  const { tree, log } = session;
  const { nodes } = log;
  const nodeTexts = earlierTexts(nodes);
  const isKnown = (position: number): boolean => nodeTexts.get(position)?.parent === nodes.parent(position);
  const unknown = positions.filter((position) => !isKnown(position));
  const lines = log.readMany(unknown, true)[Symbol.iterator]();
  for (const position of positions) {
    let text = isKnown(position) ? nodeTexts.get(position)?.text : undefined;
    if (text === undefined) {
      text = flatText(session, position, lines.next().value);
      if (nodeTexts.size < MAX_REMEMBERED) nodeTexts.set(position, { parent: nodes.parent(position), text });
    }
    const label = tree.labels.get(position);
    if (label) text += `,"label":${JSON.stringify(label.label)}`;
    yield `${text},"childCount":${tree.childCount(position)}}`;
  }
}

/** Returns the first part of a node's JSON text, which is valid as long as the entry is. */
function flatText(session: Session, position: number, line: Uint8Array): string {
  const { nodes } = session.log;
  const body = briefBody(line, SEEN);
  const brief = briefOf(body);
  const text = briefText(body) || callsText(brief.calls);
  const node: Omit<z.input<typeof flatNode>, "childCount"> = {
    id: nodes.id(position),
    parentId: session.idOrNull(nodes.parent(position)),
    type: nodes.type(position),
    timestamp: typeof body.timestamp === "string" ? body.timestamp : undefined,
    role: brief.role,
    preview: text === "" ? undefined : preview(text),
    ...brief,
  };
  return JSON.stringify(node).slice(0, -1);
}

/** Yields nodes inside nodes, each before its children. It is not recursive, so any depth works. */
function* nestedTexts(session: Session, positions: Int32Array, labels: Tree["labels"]): Generator<Uint8Array> {
  const { tree, log } = session;
  const open: number[] = [];
  const end = (position: number): Uint8Array => {
    const label = labels.get(position);
    return label ? bytesOf(`]${labelText(session, label)}}`) : END;
  };
  let begin = FIRST;
  let i = 0;
  yield LIST;
  for (const line of log.readMany(positions, true)) {
    const position = positions[i++];
    for (const depth = tree.depth(position); open.length > depth; begin = NEXT) yield end(open.pop() as number);
    yield begin;
    yield line;
    yield CHILDREN;
    open.push(position);
    begin = FIRST;
  }
  while (open.length > 0) yield end(open.pop() as number);
  yield LIST_END;
}

const LIST = bytesOf("[");
const LIST_END = bytesOf("]");
const FIRST = bytesOf('{"entry":');
const NEXT = bytesOf(',{"entry":');
const CHILDREN = bytesOf(',"children":[');
const END = bytesOf("]}");

function labelText(session: Session, label: Label): string {
  const { timestamp } = session.entry(label.setBy) as { timestamp?: unknown };
  const since = typeof timestamp === "string" ? `,"labelTimestamp":${JSON.stringify(timestamp)}` : "";
  return `,"label":${JSON.stringify(label.label)}${since}`;
}
