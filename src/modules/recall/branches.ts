/** The tools tree and compare: branch points and ends of a session or a family, and how two branches differ. */

import type { CommandResult, RecallSession } from "../../server/recall-module.ts";
import { type Library, splitRef } from "./library.ts";
import { budgetParam } from "./params.ts";
import type { Redaction } from "./redaction.ts";
import { countOf, formatDay, formatSession, type Tool, toBytesOf } from "./shared.ts";
import { AnswerText, fence, quote, toInline } from "./texts.ts";

const TREE_TOKENS = 1500;
const COMPARE_TOKENS = 2000;
/** Ends whose cost is counted. */
const MOST_COUNTED = 12;
/** Files of each side. */
const MOST_FILES = 12;
/** Characters of a text that are read for its beginning. */
const READ = 2000;

export const tree: Tool = {
  name: "tree",
  title: "See the branches of a session",
  description:
    "See how a session went: its branch points with what was asked at each, and the end of every branch with time, messages and cost, " +
    "which one is active and which were abandoned. scope family: forks and subagents in other files, too. Use it before you trust a " +
    "decision: another branch may have revised it.",
  operands: ["ref"],
  params: {
    ref: { type: "string", isNeeded: true },
    scope: { type: "string", oneOf: ["session", "family"] },
    max_tokens: budgetParam(TREE_TOKENS, 8000),
  },
  async run({ library, args, redaction }) {
    const listed = await library.find(splitRef(String(args.ref)).session);
    const answer = new AnswerText(toBytesOf(args.max_tokens, TREE_TOKENS));
    if (args.scope === "family") return describeFamily(library, redaction, answer, listed);
    return library.read(listed, (sessionId) => describeTree(library, redaction, answer, listed, sessionId));
  },
};

interface TreeNode {
  readonly id: string;
  readonly parent: TreeNode | undefined;
  readonly node: CommandResult;
  readonly children: TreeNode[];
  readonly depth: number;
}

async function describeTree(
  library: Library,
  redaction: Redaction,
  answer: AnswerText,
  listed: RecallSession,
  sessionId: string,
) {
  const byId = new Map<string, TreeNode>();
  const roots: TreeNode[] = [];
  for await (const node of library.nodes(sessionId)) {
    const parent = node.parentId === null ? undefined : byId.get(node.parentId);
    const made: TreeNode = { id: node.id, parent, node, children: [], depth: parent ? parent.depth + 1 : 0 };
    (parent?.children ?? roots).push(made);
    byId.set(node.id, made);
  }
  const { leafId } = await library.world.ask("preview_session", {
    sessionPath: listed.sessionPath,
    before: 0,
    after: 0,
    characters: 1,
  });
  const active = new Set<TreeNode>();
  for (let at = byId.get(leafId); at; at = at.parent) active.add(at);
  const points = [...byId.values()].filter(({ children }) => children.length > 1);
  if (roots.length > 1)
    answer.add(
      `${roots.length} beginnings: ${roots
        .map(({ id }) => id)
        .slice(0, 8)
        .join(", ")}`,
    );
  const texts = new SaidTexts(library, redaction, sessionId);
  let shown = 0;
  for (const point of points) {
    const lines = [`after ${describeNode(point, redaction)}, ${countOf(point.children.length, "branch", "branches")}:`];
    for (const child of point.children.slice(0, 10)) {
      const asked = firstSaid(child);
      const mark = active.has(child) ? "active" : "abandoned";
      lines.push(`  - ${child.id} (${mark}) ${asked ? await texts.of(asked) : "nothing said"}`);
    }
    if (!answer.add(lines.join("\n"))) break;
    shown++;
  }
  const ends = [...byId.values()].filter(({ children, id }) => children.length === 0 || id === leafId);
  // The active end is first, then the latest.
  const isActive = ({ id }: TreeNode): number => (id === leafId ? 1 : 0);
  ends.sort((a, b) => isActive(b) - isActive(a) || String(b.node.timestamp).localeCompare(String(a.node.timestamp)));
  let endCount = 0;
  for (const end of ends) {
    const cost = endCount < MOST_COUNTED ? await costOf(library, listed, end.id) : undefined;
    const labels = labelsOf(end).map((label) => `label ${quote(redaction.text(label), 40)}`);
    const last = lastSaid(end);
    const parts = [
      `end ${end.id}`,
      isActive(end) ? "active" : "abandoned",
      formatDay(end.node.timestamp),
      countOf(end.depth + 1, "entry", "entries"),
      ...(cost ? [cost] : []),
      ...labels.slice(0, 3),
    ];
    if (!answer.add(`${parts.join(" · ")}${last ? `\n  ${await texts.of(last)}` : ""}`)) break;
    endCount++;
  }
  const left = [
    ...(shown < points.length ? [`${countOf(points.length - shown, "branch point")} more`] : []),
    ...(endCount < ends.length ? [`${countOf(ends.length - endCount, "end")} more`] : []),
  ];
  const head = `${formatSession(listed, library, redaction)}\n${countOf(byId.size, "entry", "entries")}, ${countOf(points.length, "branch point")}, ${countOf(ends.length, "end")}`;
  const foot = `${left.length > 0 ? `${left.join(" and ")} with a larger max_tokens. ` : ""}Go on with open at ${listed.shortId}#<entry>, or compare two ends.`;
  return answer.finish(head, foot, "\n");
}

/** The beginnings of what entries say, read whole so that no half of a secret is left. */
class SaidTexts {
  private readonly library: Library;
  private readonly redaction: Redaction;
  private readonly sessionId: string;

  constructor(library: Library, redaction: Redaction, sessionId: string) {
    this.library = library;
    this.redaction = redaction;
    this.sessionId = sessionId;
  }

  async of({ id, node }: TreeNode): Promise<string> {
    const { entry } = await this.library.world.ask("get_entry", {
      sessionId: this.sessionId,
      entryId: id,
      images: "omit",
    });
    const [clean] = this.redaction.entries([entry as CommandResult], READ);
    const { content, summary } = { ...clean, ...clean.message };
    const blocks = Array.isArray(content)
      ? content.map((block) => block?.text).filter((text) => typeof text === "string")
      : [content];
    const text = [...blocks, summary].find((one) => typeof one === "string" && one.trim() !== "");
    const by = node.role ?? String(node.type).replaceAll("_", " ");
    return `${toInline(by, 20)}: ${text === undefined ? "a call" : quote(text, 110)}`;
  }
}

function describeNode({ id, node }: TreeNode, redaction: Redaction): string {
  const label = node.label ? ` (label ${quote(redaction.text(node.label), 40)})` : "";
  return `${id}${label}, ${formatDay(node.timestamp)}`;
}

/** Returns the first message of a person from a node on, without leaving its branch. */
function firstSaid(from: TreeNode): TreeNode | undefined {
  let at: TreeNode | undefined = from;
  let any: TreeNode | undefined;
  while (at) {
    if (at.node.role === "user") return at;
    if (at.node.role === "assistant") any ??= at;
    at = at.children.length === 1 ? at.children[0] : undefined;
  }
  return any;
}

function lastSaid(from: TreeNode): TreeNode | undefined {
  for (let at: TreeNode | undefined = from, steps = 0; at && steps < 50; at = at.parent, steps++)
    if ((at.node.role === "user" || at.node.role === "assistant") && at.node.preview && !/^\[/.test(at.node.preview))
      return at;
  return undefined;
}

function labelsOf(from: TreeNode): string[] {
  const labels: string[] = [];
  for (let at: TreeNode | undefined = from, steps = 0; at && steps < 2000 && labels.length < 3; at = at.parent, steps++)
    if (at.node.label) labels.push(at.node.label);
  return labels;
}

async function costOf(library: Library, { sessionPath }: RecallSession, leafId: string): Promise<string | undefined> {
  const stats = await library.world.ask("get_session_stats", { sessionPath, leafId }).catch(() => undefined);
  const cost = stats?.path?.cost;
  return typeof cost === "number" && cost > 0 ? `$${cost.toFixed(2)}` : undefined;
}

async function describeFamily(library: Library, redaction: Redaction, answer: AnswerText, listed: RecallSession) {
  const relatives =
    listed.agent === undefined ? await library.family(listed.sessionId) : [{ listed, forkedAtEntryId: undefined }];
  // The original may be one that is kept out.
  const known = new Set(relatives.map(({ listed: one }) => one.sessionId));
  let shown = 0;
  for (const { listed: one, forkedAtEntryId } of relatives) {
    const from =
      one.forkedFrom && known.has(one.forkedFrom.sessionId)
        ? [`fork of ${one.forkedFrom.sessionId.slice(0, 13)}${forkedAtEntryId ? ` after ${forkedAtEntryId}` : ""}`]
        : [];
    const mark = one.sessionPath === listed.sessionPath ? ["the one asked about"] : [];
    if (!answer.add(formatSession(one, library, redaction, [...from, ...mark]))) break;
    shown++;
  }
  const head = `${countOf(relatives.length, "session")} come from the same one, by forks and subagents, parents first`;
  const left = relatives.length - shown;
  return answer.finish(
    head,
    left > 0 ? `${countOf(left, "session")} more with a larger max_tokens.` : "Go on with tree or open.",
    "\n",
  );
}

export const compare: Tool = {
  name: "compare",
  title: "Compare two branches",
  description:
    "Compare two branches of a session, or a session and its fork: where they part, and for each side messages, failed calls, files " +
    "changed, cost and the last answer. a and b are refs; b may be an entry of the same session, such as an end that tree shows.",
  operands: ["a", "b"],
  params: {
    a: { type: "string", isNeeded: true, description: "session#entry" },
    b: { type: "string", isNeeded: true, description: "session#entry, or #entry of the same session" },
    max_tokens: budgetParam(COMPARE_TOKENS, 8000),
  },
  async run({ library, args, redaction }) {
    const one = splitRef(String(args.a));
    const given = String(args.b).trim();
    const other = given.startsWith("#") ? { session: one.session, entry: given.slice(1) } : splitRef(given);
    const first = await library.find(one.session);
    const second = other.session === one.session ? first : await library.find(other.session);
    const answer = new AnswerText(toBytesOf(args.max_tokens, COMPARE_TOKENS));
    const idOf = (listed: RecallSession, entry: string | undefined): Promise<string> =>
      entry === undefined || entry === "leaf"
        ? Promise.resolve("leaf")
        : library.read(listed, (sessionId) => library.findEntry(sessionId, entry));
    const [a, b] = [await idOf(first, one.entry), await idOf(second, other.entry)];
    const result = await library.world.ask("compare_branches", {
      ...{ sessionPath: first.sessionPath, a, b, limit: 12 },
      ...(second.sessionPath === first.sessionPath ? {} : { otherPath: second.sessionPath }),
    });
    const sides = [
      { name: "a", listed: first, side: result.a },
      { name: "b", listed: second, side: result.b },
    ];
    for (const { name, listed, side } of sides) answer.add(describeSide(name, listed, side, redaction));
    for (const { name, listed, side } of sides) {
      const last = side.lastAnswer;
      if (last)
        answer.add(
          `${name}, last answer ${listed.shortId}#${last.entryId}, ${formatDay(last.at)}:\n${fence(redaction.text(last.text, last.text.length >= 80))}`,
        );
    }
    const asked = sides.flatMap(({ name, listed, side }) =>
      side.entries
        .filter(({ role, isError }: CommandResult) => role === "user" || isError)
        .map((said: CommandResult) => ({ name, listed, said })),
    );
    for (const { name, listed, said } of asked) {
      const what = said.isError ? `failed ${toInline(said.toolName ?? "call", 40)}` : "asked";
      if (
        !answer.add(
          `${name}, ${what}, ${listed.shortId}#${said.entryId}: ${quote(redaction.text(said.text, said.text.length >= 80), 140)}`,
        )
      )
        break;
    }
    const { commonAncestorId, commonEntryCount } = result;
    const parting =
      commonAncestorId === null
        ? "They have nothing in common."
        : `They part after ${commonAncestorId}; ${countOf(commonEntryCount, "entry", "entries")} in common.`;
    const names = first === second ? [first] : [first, second];
    return answer.finish(
      [parting, ...names.map((listed) => formatSession(listed, library, redaction))].join("\n"),
      "Go on with open.",
      "\n",
    );
  },
};

function describeSide(name: string, { shortId }: RecallSession, side: CommandResult, redaction: Redaction): string {
  const list = (files: readonly string[]): string => {
    const shown = files.slice(0, MOST_FILES).map((file) => toInline(redaction.text(file), 100));
    return files.length > shown.length
      ? `${shown.join(", ")} and ${files.length - shown.length} more`
      : shown.join(", ");
  };
  const { modifiedFiles, readFiles } = side.files;
  const messages = (side.userMessages ?? 0) + (side.assistantMessages ?? 0);
  const facts = [
    `${name}: to ${shortId}#${side.entryId ?? "the beginning"}`,
    countOf(side.entryCount, "entry", "entries"),
    ...(messages > 0 ? [countOf(messages, "message")] : []),
    countOf(side.failedCalls, "failed call"),
    ...(side.cost ? [`$${side.cost.toFixed(2)}`] : []),
    ...(side.endedAt ? [formatDay(side.endedAt)] : []),
  ];
  const changed = modifiedFiles.length > 0 ? `\n  changed: ${list(modifiedFiles)}` : "";
  const read = readFiles.length > 0 ? `\n  read: ${list(readFiles)}` : "";
  return `${facts.join(" · ")}${changed}${read}`;
}
