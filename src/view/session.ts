/** The page of a session: the one that an export writes, with a way back and with what comes while it is open. */

import { formatCount } from "../page/amounts.ts";
import { escapeHtml } from "../page/escape.ts";
import { AskFailed, makeHtmlAnswer, redirect, type ViewAnswer, type ViewHost } from "./answer.ts";
import { makeHref, PLACES, renderBar } from "./frame.ts";
import type { ShownSession } from "./list.ts";
import { formatPlace } from "./live.ts";

/** Pages that wait to be drawn at a time: each can be large, so they are drawn one after the other. */
const WAITING = 8;

/** Draws the pages of sessions, one at a time. */
export class SessionPages {
  private readonly host: ViewHost;
  private turn: Promise<unknown> = Promise.resolve();
  private waiting = 0;

  constructor(host: ViewHost) {
    this.host = host;
  }

  /** Returns the page of the session at `path`, or where the one of this `id` is now. Throws AskFailed. */
  async page(query: URLSearchParams): Promise<ViewAnswer> {
    const [path, id] = [query.get("path") ?? "", query.get("id") ?? ""];
    if (path === "" && id === "") throw new AskFailed("session_not_found", "Choose a session of the list.");
    if (path === "") return this.elsewhere(path, id);
    if (this.waiting >= WAITING) throw new AskFailed("busy", "Other pages are being drawn. Try again in a moment.");
    this.waiting++;
    try {
      const turn = this.turn.then(() => this.drawn(path, id, query.get("part") === RECENT));
      this.turn = turn.catch(() => undefined);
      return await turn;
    } finally {
      this.waiting--;
    }
  }

  private async drawn(sessionPath: string, id: string, isRecent: boolean): Promise<ViewAnswer> {
    const { host } = this;
    try {
      // An entry written between the two requests is on the page, and comes again as an event that replaces it.
      const state = await host.ask("preview_session", { sessionPath, before: 0, after: 0, characters: 1 });
      const part = isRecent ? { branches: RECENT } : {};
      const { content } = await host.ask("export_session", { sessionPath, format: "html", ...part });
      return pageAnswer(content, sessionPath, state);
    } catch (error) {
      if (error instanceof AskFailed && error.failure === "message_too_large")
        throw new AskFailed(error.failure, LARGE, isRecent ? undefined : recentLink(sessionPath, id));
      if (!(error instanceof AskFailed) || !GONE.has(error.failure) || id === "") throw error;
      return this.elsewhere(sessionPath, id, error);
    }
  }

  /** Leads to where a session is that is no longer where it was. Throws AskFailed. */
  private async elsewhere(path: string, id: string, error?: AskFailed): Promise<ViewAnswer> {
    for (const archived of [false, true]) {
      const wanted = { query: id, archived, headerOnly: true, limit: 20 };
      const { sessions } = await this.host.ask("list_sessions", wanted);
      const found = sessions.find((row: ShownSession) => row.sessionId === id && row.sessionPath !== path);
      if (found) return redirect(`${PLACES.session}?${new URLSearchParams({ path: found.sessionPath, id })}`);
    }
    throw error ?? new AskFailed("session_not_found", "No session has this id: it was deleted or moved.");
  }
}

const LARGE = "This session is too large for one page. The verb show prints it, and export writes it to a file.";

/** The part of a session that begins at its last compaction. */
const RECENT = "recent";

function recentLink(path: string, id: string): string {
  return `<a href="${makeHref(PLACES.session, { path, id, part: RECENT })}">Its path from the last compaction</a>`;
}

const GONE: ReadonlySet<string> = new Set(["session_not_found", "not_a_session", "storage_failed"]);

const POLICY = /<meta http-equiv="Content-Security-Policy" content="([^"]*)">\n?/;

/** The link over everything at the beginning, which stays the first that the keyboard reaches. */
const SKIP = /^\s*<a class="skip"[^>]*>[^<]*<\/a>/;

/** Returns the answer with an exported page. Its policy goes into a header, with what following it needs besides. */
// biome-ignore lint/suspicious/noExplicitAny: the result as it came from the wire
function pageAnswer(content: string, sessionPath: string, state: any): ViewAnswer {
  const policy = POLICY.exec(content.slice(0, 4096));
  const headEnd = content.indexOf("</head>");
  const bodyStart = content.indexOf(">", content.indexOf("<body", headEnd)) + 1;
  const skip = SKIP.exec(content.slice(bodyStart, bodyStart + 1024))?.[0].length ?? 0;
  if (!policy || headEnd < 0 || bodyStart === 0) throw new TypeError("the exported page is not as it was");
  const place = formatPlace({ after: state.lastEntryId, tail: state.leafId });
  const ours = `<link rel="stylesheet" href="${PLACES.barStyle}">\n<script src="${PLACES.script}" defer></script>\n`;
  const parts = [
    content.slice(0, policy.index),
    content.slice(policy.index + policy[0].length, headEnd),
    ours,
    content.slice(headEnd, bodyStart + skip),
    `\n${sessionBar(sessionPath, state, place)}`,
    content.slice(bodyStart + skip),
  ];
  return makeHtmlAnswer(parts.join(""), 200, widened(policy[1]));
}

/** Returns a page's policy with our style sheet, our script and our events. */
function widened(policy: string): string {
  const directives = new Map(
    policy.split(";").map((one) => {
      const [name, ...sources] = one.trim().split(/\s+/);
      return [name, sources];
    }),
  );
  const sourcesOf = (name: string): string[] => (directives.get(name) ?? []).filter((source) => source !== "'none'");
  for (const name of ["script-src", "style-src", "connect-src"]) directives.set(name, [...sourcesOf(name), "'self'"]);
  // Only what our script makes by its one policy becomes elements.
  directives.set("trusted-types", [...(directives.get("trusted-types") ?? []), "view"]);
  directives.set("require-trusted-types-for", ["'script'"]);
  directives.set("frame-ancestors", ["'none'"]);
  return [...directives].map(([name, sources]) => [name, ...sources].join(" ")).join("; ");
}

// biome-ignore lint/suspicious/noExplicitAny: the result as it came from the wire
function sessionBar(sessionPath: string, state: any, place: string | undefined): string {
  const { sessionId, damageCount, lockedBy } = state;
  const events = place === undefined ? "" : makeHref(PLACES.events, { path: sessionPath });
  const family = `<a href="${makeHref(PLACES.family, { id: sessionId })}">Family</a>`;
  const damage = damageCount > 0 ? `<span class="tag">${formatCount(damageCount, "damaged place")}</span>` : "";
  const writer = lockedBy
    ? `<span class="tag" title="${escapeHtml(lockedBy.client)}">open in process ${Number(lockedBy.pid)}</span>`
    : "";
  const live = `<span class="live" id="view.status" role="status" data-events="${events}" data-from="${place ?? ""}"></span><button type="button" class="news" id="view.news" hidden></button>`;
  return renderBar("other", family + damage + writer + live);
}
