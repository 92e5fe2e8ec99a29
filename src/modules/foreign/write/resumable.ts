/** Makes a session into a file that another agent resumes, with its path and the command for it. */

import { makeResumeCommand, type ResumableSession, type ResumingAgent } from "../../../core/export/resumable.ts";
import { NO_TIME, toTimestamp } from "../../../core/foreign/messages.ts";
import type { Session } from "../../../core/session/session.ts";
import { ClaudeFormat } from "./claude/claude.ts";
import { CodexFormat } from "./codex/codex.ts";
import { deriveUuid } from "./format.ts";
import { makePathRoute, makeTreeRoute } from "./route.ts";
import { ExportWalk } from "./walk.ts";

interface ResumableFile extends Omit<ResumableSession, "path"> {
  /** Parts of the path of the file, below the agent's folder of sessions; undefined without a directory. */
  readonly parts: readonly string[] | undefined;
}

/** See {@link MakeResumable}. */
export function makeResumableFile(
  agent: ResumingAgent,
  session: Session,
  { leaf, all }: { readonly leaf: number; readonly all: boolean },
): ResumableFile {
  const { tree, cwd } = session;
  const { sha256 } = session.env;
  const isTree = all && agent === "claude";
  const route = isTree ? makeTreeRoute(tree, leaf) : makePathRoute(tree, leaf);
  const extent = isTree ? "tree" : "path";
  // A session that has grown since is another one: it must not replace a file that the agent has continued, too.
  const sessionId = deriveUuid(sha256, agent, "session", session.id, extent, session.idOrNull(leaf) ?? "");
  const options = { session, route, sessionId, sha256 };
  const walk = new ExportWalk(
    session,
    route,
    agent === "claude" ? new ClaudeFormat(options) : new CodexFormat(options),
  );
  const began = toTimestamp(session.log.header.timestamp, NO_TIME);
  return {
    sessionId,
    parts:
      agent === "codex" ? rolloutPath(sessionId, began) : cwd === "" ? undefined : [slugOf(cwd), `${sessionId}.jsonl`],
    command: makeResumeCommand(agent, sessionId, cwd) as string,
    lines: () => walk.lines(),
    report: () => walk.report(),
  };
}

function rolloutPath(sessionId: string, began: string): string[] {
  const [day, time] = began.split("T");
  const [year, month, date] = day.split("-").slice(-3);
  return [year, month, date, `rollout-${day}T${time.slice(0, 8).replaceAll(":", "-")}-${sessionId}.jsonl`];
}

/** Characters of a directory in the name of its folder, before a hash takes the place of the others. */
const LONGEST_SLUG = 200;

/** Returns the name of Claude Code's folder for the sessions of a directory. */
function slugOf(cwd: string): string {
  const slug = cwd.replace(/[^A-Za-z0-9]/g, "-");
  if (slug.length <= LONGEST_SLUG) return slug;
  let hash = 0;
  for (let at = 0; at < cwd.length; at++) hash = (Math.imul(hash, 31) + cwd.charCodeAt(at)) | 0;
  return `${slug.slice(0, LONGEST_SLUG)}-${Math.abs(hash).toString(36)}`;
}
