import * as z from "zod";
import { bytesOf, parse, parseAbridged } from "../core/json.ts";
import { contentText, preview, toolCalls } from "../core/message.ts";
import { ROOT } from "../core/nodes.ts";
import { Raw } from "../core/raw.ts";
import type { Session } from "../core/session.ts";
import type { Label, Tree } from "../core/tree.ts";
import { command } from "./command.ts";
import { atMost, indexOf, take } from "./page.ts";
import { cursor, entry, limit, nextCursor, stored } from "./shapes.ts";

const flatNode = z.object({
  id: z.string(),
  parentId: z.string().nullable(),
  type: z.string(),
  timestamp: z.string().optional(),
  role: z.string().optional(),
  preview: z.string().optional().describe("the beginning of its text; in brackets the tools it calls, if it has none"),
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
  summary: "All branches: as a flat list in file order, or nested as Pi answers it.",
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
    nodes: z.array(flatNode).optional().describe("when flat"),
    tree: stored(z.array(nestedNode)).optional().describe("when nested"),
    leafId: z.string().nullable(),
    nextCursor,
  }),
  failures: ["cursor_expired"],
  example: {
    params: {},
    result: {
      nodes: [{ id: "a1b2c3d4", parentId: null, type: "message", role: "user", preview: "Hello", childCount: 0 }],
      leafId: "a1b2c3d4",
    },
  },
  run(context, params) {
    const { session } = context;
    const format = params.format ?? (context.dialect === "pi" ? "nested" : "flat");
    if (format === "nested") {
      // The text is made when the reply leaves, and tells of now.
      const { count } = session.log.nodes;
      const labels = new Map(session.tree.labels);
      return { tree: new Raw(() => nestedText(session, count, labels)), leafId: session.leafId };
    }
    const most = atMost(context, params.limit);
    const found: number[] = [];
    for (const position of session.visible(indexOf(params.cursor, session.log.nodes.count))) {
      found.push(position);
      if (found.length > most) break;
    }
    const nodes: z.input<typeof flatNode>[] = [];
    const all = flatNodes(session, found);
    const make = (): z.input<typeof flatNode> => {
      const node = all.next().value as z.input<typeof flatNode>;
      nodes.push(node);
      return node;
    };
    // Where replies are limited, nodes are made as long as there is room for them.
    const past = take(context, params.limit, found.length, 0, () => bytesOf(JSON.stringify(make())));
    while (nodes.length < past) make();
    return {
      nodes: nodes.slice(0, past),
      leafId: session.leafId,
      nextCursor: past < found.length ? String(found[past]) : undefined,
    };
  },
});

/** Of a longer entry only the beginnings of its texts are looked at: a preview shows no more of them. */
const LONG = 1 << 14;
const SEEN = 4096;

function* flatNodes(session: Session, positions: number[]): Generator<z.input<typeof flatNode>> {
  const { tree } = session;
  const { nodes } = session.log;
  let i = 0;
  for (const line of session.log.readMany(positions)) {
    const position = positions[i++];
    const body = (line.length > LONG ? parseAbridged(line, SEEN) : parse(line)) as Record<string, unknown>;
    const text = previewOf(body);
    yield {
      id: nodes.id(position),
      parentId: session.idOrNull(nodes.parent(position)),
      type: nodes.type(position),
      timestamp: typeof body.timestamp === "string" ? body.timestamp : undefined,
      role: (body.message as { role?: string } | null | undefined)?.role,
      preview: text === "" ? undefined : text,
      label: tree.labels.get(position)?.label,
      childCount: tree.childCount(position),
    };
  }
}

/** The first words of whatever an entry says. */
function previewOf(body: Record<string, unknown>): string {
  const message = body.message as { content?: unknown; command?: unknown } | null | undefined;
  const text =
    contentText(message?.content) ||
    contentText(body.content) ||
    callsText(message?.content) ||
    [message?.command, body.summary, body.name, body.label, body.modelId, body.thinkingLevel, body.customType].find(
      (value) => typeof value === "string",
    );
  return typeof text === "string" ? preview(text) : "";
}

function callsText(content: unknown): string {
  const names = toolCalls(content).map(({ name }) => name);
  return names.length === 0 ? "" : `[${names.join(", ")}]`;
}

/** Nodes inside nodes, the first `count` of the file, written without recursion so that any depth is served. */
function* nestedText(session: Session, count: number, labels: Tree["labels"]): Generator<Uint8Array> {
  const { tree } = session;
  const open: { siblings: Generator<number>; position: number; first: boolean }[] = [
    { siblings: tree.children(ROOT), position: ROOT, first: true },
  ];
  yield bytesOf("[");
  for (let top = open.at(-1); top; top = open.at(-1)) {
    const next = top.siblings.next();
    if (next.done || next.value >= count) {
      open.pop();
      yield bytesOf(top.position === ROOT ? "]" : `]${labelText(session, labels.get(top.position))}}`);
      continue;
    }
    yield bytesOf(top.first ? '{"entry":' : ',{"entry":');
    top.first = false;
    yield session.line(next.value);
    yield bytesOf(',"children":[');
    open.push({ siblings: tree.children(next.value), position: next.value, first: true });
  }
}

function labelText(session: Session, label: Label | undefined): string {
  if (!label) return "";
  const { timestamp } = session.entry(label.setBy);
  return `,"label":${JSON.stringify(label.label)}${timestamp === undefined ? "" : `,"labelTimestamp":${JSON.stringify(timestamp)}`}`;
}
