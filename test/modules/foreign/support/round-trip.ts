/** The way to another agent and back: the conversation of a session, in the words of both. */

import { expect } from "vitest";
import type { ResumingAgent } from "../../../../src/core/export/resumable.ts";
import type { Session } from "../../../../src/core/session/session.ts";
import { makeResumableFile } from "../../../../src/modules/foreign/write/resumable.ts";
import { diskWith, openOn } from "../../../support/sessions.ts";
import { entriesOf, foreignSession, requireSound, requireSum, strictContext } from "./checks.ts";
import { ClaudeReader, claudeFault, codexFault, codexHistory } from "./readers.ts";

interface WrittenSession {
  readonly text: string;
  readonly sessionId: string;
  readonly report: ReturnType<ReturnType<typeof makeResumableFile>["report"]>;
}

/** Returns the file that an agent resumes. */
function written(agent: ResumingAgent, session: Session, leaf = session.tree.leaf): WrittenSession {
  const file = makeResumableFile(agent, session, { leaf, all: agent === "claude" });
  const text = [...file.lines()].join("");
  return { text, sessionId: file.sessionId, report: file.report() };
}

export function openText(text: string | Uint8Array): Session {
  return openOn(diskWith(text));
}

type Value = Record<string, unknown>;

function blocks(content: unknown): unknown[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : (content as unknown[]);
}

/** Returns the text of a message, in the words in which it comes back from an agent. */
function said(
  agent: ResumingAgent,
  { role, content, summary, command, output, excludeFromContext, ...rest }: Value,
): unknown[] {
  if (role === "assistant") return [[role, content]];
  if (role === "toolResult") return [[role, rest.toolCallId, rest.toolName, blocks(content), rest.isError]];
  if (role === "compactionSummary") return [[role, summary]];
  if (role === "branchSummary")
    return [["given", blocks(`A summary of another branch of this conversation:\n\n${summary}`)]];
  if (role !== "bashExecution") return [["given", blocks(content)]];
  if (excludeFromContext === true) return [];
  if (agent === "codex") {
    const result = `Exit code: 0\nOutput:\n${output}`;
    const text = `<user_shell_command>\n<command>\n${command}\n</command>\n<result>\n${result}\n</result>\n</user_shell_command>`;
    return [["given", blocks(text)]];
  }
  const came = `<bash-stdout>${output}</bash-stdout><bash-stderr></bash-stderr>`;
  return [
    ["given", blocks(`<bash-input>${command}</bash-input>`)],
    ["given", blocks(came)],
  ];
}

/** The strict context at a leaf, as it comes back. */
export function contextSaid(agent: ResumingAgent, session: Session): unknown[] {
  return strictContext(session, session.tree.leaf).flatMap((message) => said(agent, message));
}

/** Returns the texts on the paths to all ends of a tree, each once, without the beginnings of others. */
export function pathsSaid(agent: ResumingAgent, session: Session): string[] {
  const { nodes } = session.log;
  const entries = entriesOf(session);
  const isParent = new Set(entries.map((_, position) => nodes.parent(position)));
  const spoken = entries.map(({ type, message, ...rest }): unknown[] => {
    if (type === "message") return said(agent, message as Value);
    if (type === "custom_message") return said(agent, { ...rest, role: "custom" });
    if (type === "branch_summary") return said(agent, { ...rest, role: "branchSummary" });
    return type === "compaction" ? [["compaction", rest.summary]] : [];
  });
  const paths = new Set<string>();
  for (const position of entries.keys())
    if (!isParent.has(position))
      paths.add(
        [...session.tree.path(position)].flatMap((at) => spoken[at].map((one) => JSON.stringify(one))).join("\n"),
      );
  const all = [...paths].sort();
  return all.filter((path, n) => !all[n + 1]?.startsWith(path));
}

/** Everything that holds for a file that was written of any session, damaged or not. */
export function requireResumable(agent: ResumingAgent, session: Session, leaf = session.tree.leaf): WrittenSession {
  const made = written(agent, session, leaf);
  expect(written(agent, session, leaf).text).toBe(made.text);
  requireSum(made.report);
  const onRoute = agent === "claude" ? session.tree.entryCount : session.tree.path(leaf).length;
  expect(made.report.records).toBe(onRoute);
  expect(/[\u2028\u2029\r]|\\u[dD][89a-fA-F]/.exec(made.text)?.index).toBeUndefined();
  if (agent === "codex") expect(codexFault(codexHistory(made.text))).toBeNull();
  else {
    const reader = new ClaudeReader(made.text);
    for (const end of reader.ends) expect(claudeFault(reader.messagesAt(end)), `at ${end}`).toBeNull();
    if (reader.leaf !== undefined) expect(claudeFault(reader.messagesAt(reader.leaf))).toBeNull();
  }
  if (
    made.text !== "" &&
    !(agent === "claude" && new ClaudeReader(made.text).records.every(({ uuid }) => uuid === undefined))
  ) {
    const back = foreignSession(made.text, "/elsewhere/back.jsonl");
    requireSound(back);
    expect(back.log.foreign?.agent).toBe(agent);
    back.close();
  }
  return made;
}
