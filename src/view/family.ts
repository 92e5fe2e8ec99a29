/** The sessions that come from the same one, each below the one that it is a fork of. */

import { formatCount, group } from "../page/amounts.ts";
import { escapeHtml } from "../page/escape.ts";
import type { ViewAnswer, ViewHost } from "./answer.ts";
import { FAMILY_LEVELS, makeSessionHref, renderAgo, renderFramed } from "./frame.ts";
import { getSessionTitle, type ShownSession } from "./list.ts";

/** Members of a family that are shown; their names are looked up one by one. */
const MOST = 200;

interface FamilyMember {
  readonly sessionPath: string | null;
  readonly sessionId: string;
  readonly row: ShownSession | undefined;
  readonly level: number;
}

export async function renderFamilyPage(host: ViewHost, query: URLSearchParams): Promise<ViewAnswer> {
  const sessionId = query.get("id") ?? "";
  const { nodes } = await host.ask("get_session_family", { sessionId });
  const relatives: FamilyMember[] = [];
  const levels = new Map<string, number>();
  for (const node of nodes.slice(0, MOST)) {
    const row = await rowOf(host, node.sessionId);
    // Parents come before their forks.
    const above = levels.get(row?.forkedFrom?.sessionId ?? "");
    const level = above === undefined ? 0 : Math.min(above + 1, FAMILY_LEVELS);
    levels.set(node.sessionId, level);
    relatives.push({ ...node, row, level });
  }
  const rows = relatives.map((one) => memberHtml(host, one, sessionId));
  const rest = nodes.length - relatives.length;
  const more = rest > 0 ? `<p class="dim">and ${group(rest)} more</p>` : "";
  const count = `<p class="dim">${formatCount(nodes.length, "session")}, forks below their originals</p>`;
  return renderFramed("Family", "other", `${count}\n<ul class="rows">${rows.join("")}</ul>${more}`);
}

function memberHtml(host: ViewHost, { sessionPath, sessionId, row, level }: FamilyMember, current: string): string {
  const title = escapeHtml(row ? getSessionTitle(row) : sessionId);
  const mark = sessionId === current ? ' aria-current="true"' : "";
  const link =
    sessionPath === null ? title : `<a href="${makeSessionHref(sessionPath, sessionId)}"${mark}>${title}</a>`;
  const here = mark === "" ? "" : ' <span class="tag">this one</span>';
  const facts = row ? [renderAgo(row.modified, host.now()), formatCount(row.messageCount, "message")] : [];
  const shownFacts = [...facts, escapeHtml(row?.shortId ?? "")].filter(Boolean).join(" · ");
  return `<li class="level${level}">${link}${here}<p>${shownFacts}</p></li>\n`;
}

async function rowOf(host: ViewHost, sessionId: string): Promise<ShownSession | undefined> {
  for (const archived of [false, true]) {
    const { sessions } = await host.ask("list_sessions", { query: sessionId, archived, headerOnly: true, limit: 5 });
    const found = sessions.find((row: ShownSession) => row.sessionId === sessionId);
    if (found) return found;
  }
  return undefined;
}
