import * as z from "zod";
import { replaceHalves } from "../core/json/halves.ts";
import { toBytes } from "../core/json/json.ts";
import { gatherPieces, Raw } from "../core/json/raw.ts";
import type { Session } from "../core/session/session.ts";
import type { Label, Tree } from "../core/tree/tree.ts";
import { defineCommand } from "./shared/command.ts";
import { previewMembers } from "./shared/entry-preview.ts";
import { FlatNodes } from "./shared/flat-nodes.ts";
import { findPageEnd, parseIndex, takePositions } from "./shared/page.ts";
import { cursor, entry, limit, nextCursor, typeStored } from "./shared/shapes.ts";

const flatNode = z.object({
  id: z.string(),
  parentId: z.string().nullable(),
  type: z.string(),
  timestamp: z.string().optional(),
  preview: z
    .string()
    .optional()
    .describe("the beginning of its text; if it has none, in brackets the tools it calls: `[bash: npm test]`"),
  ...previewMembers,
  label: z.string().optional(),
  childCount: z.number().int(),
});

const nestedNode = z.looseObject({
  entry,
  children: z.array(z.unknown()).describe("nodes like this one"),
  label: z.string().optional(),
  labelTimestamp: z.string().optional(),
});

export default defineCommand({
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
  result: () =>
    z.object({
      nodes: typeStored(z.array(flatNode)).optional().describe("when flat"),
      tree: typeStored(z.array(nestedNode)).optional().describe("when nested"),
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
      return { tree: new Raw(() => gatherPieces(nestedTexts(session, positions, labels))), leafId: session.leafId };
    }
    const visible = session.visible(parseIndex(params.cursor, session.log.nodes.count));
    const found = takePositions(context, params.limit, visible);
    const all = new FlatNodes(session, found);
    const texts = all.texts();
    const past = findPageEnd(context, params.limit, found.length, 0, () => texts.next().value as Uint8Array);
    return {
      nodes: new Raw(() => all.array(past)),
      leafId: session.leafId,
      nextCursor: past < found.length ? String(found[past]) : undefined,
    };
  },
});

/** Yields nodes inside nodes, each before its children. It is not recursive, so any depth works. */
function* nestedTexts(session: Session, positions: Int32Array, labels: Tree["labels"]): Generator<Uint8Array> {
  const { tree, log } = session;
  const open: number[] = [];
  const end = (position: number): Uint8Array => {
    const label = labels.get(position);
    return label ? toBytes(replaceHalves(`]${labelText(session, label)}}`)) : END;
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

const LIST = toBytes("[");
const LIST_END = toBytes("]");
const FIRST = toBytes('{"entry":');
const NEXT = toBytes(',{"entry":');
const CHILDREN = toBytes(',"children":[');
const END = toBytes("]}");

function labelText(session: Session, label: Label): string {
  const { timestamp } = session.entry(label.setBy) as { timestamp?: unknown };
  const since = typeof timestamp === "string" ? `,"labelTimestamp":${JSON.stringify(timestamp)}` : "";
  return `,"label":${JSON.stringify(label.label)}${since}`;
}
