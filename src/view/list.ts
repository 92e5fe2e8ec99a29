/** The list of sessions: by name and by everything said, in pages. */

import { arrangeFamilies, NOTHING_SAID } from "../core/search/listing.ts";
import { formatCost, formatCount, formatSize } from "../page/amounts.ts";
import { escapeHtml } from "../page/escape.ts";
import type { ViewAnswer, ViewHost } from "./answer.ts";
import {
  makeHref,
  makeSessionHref,
  PLACES,
  parseDirectory,
  renderAgo,
  renderFramed,
  renderMarked,
  toTildePath,
} from "./frame.ts";

/** Sessions and places on a page. */
const SESSIONS = 50;
const HITS = 30;
/** Sessions that a search by words shows before the places where they were said. */
const NAMED = 12;

const SORTS = { modified: "Last used", created: "Created", name: "Name", size: "Size", cost: "Cost" } as const;

/** A session as `list_sessions` returns it. */
export interface ShownSession {
  readonly sessionPath: string;
  readonly sessionId: string;
  readonly shortId?: string;
  readonly cwd: string | null;
  readonly name: string | null;
  readonly firstMessage: string | null;
  readonly modified: string | null;
  readonly messageCount: number;
  readonly sizeBytes: number;
  readonly archived: boolean;
  readonly store: string;
  /** The agent whose own file it is. */
  readonly agent?: string;
  readonly cost?: number;
  readonly forkedFrom?: { readonly sessionId: string; readonly name: string | null };
}

/** The part of the list that a person wants to see. */
interface ListOptions {
  readonly q: string;
  readonly cwd: string;
  readonly sort: keyof typeof SORTS;
  readonly archived: boolean;
  readonly named: boolean;
  /** True to search the output of tools, too. */
  readonly output: boolean;
  /** True to show sessions of other agents, too. */
  readonly others: boolean;
}

function parseOptions(query: URLSearchParams, host: ViewHost): ListOptions {
  const sort = query.get("sort") ?? "";
  return {
    q: (query.get("q") ?? "").trim(),
    cwd: parseDirectory(query, host),
    sort: Object.hasOwn(SORTS, sort) ? (sort as keyof typeof SORTS) : "modified",
    archived: query.has("archived"),
    named: query.has("named"),
    output: query.has("output"),
    others: query.has("others"),
  };
}

function queryOf({ q, cwd, sort, ...ticks }: ListOptions): Record<string, string | undefined> {
  const ticked = Object.entries(ticks).map(([name, is]) => [name, is ? "1" : undefined]);
  return { q, cwd, sort: sort === "modified" ? "" : sort, ...Object.fromEntries(ticked) };
}

/** Returns the agents whose sessions are shown; undefined for our own alone. */
function agentsOf({ others }: ListOptions, { agents }: ViewHost): "all" | readonly string[] | undefined {
  return agents ?? (others ? "all" : undefined);
}

/** Returns the list, or the hits of a search. */
export async function renderListPage(host: ViewHost, query: URLSearchParams): Promise<ViewAnswer> {
  const options = parseOptions(query, host);
  const hitsCursor = query.get("hits") ?? undefined;
  const parts = [formHtml(options, host)];
  if (hitsCursor === undefined) parts.push(await sessionsHtml(host, options, query.get("cursor") ?? undefined));
  if (options.q !== "" && !query.has("cursor")) parts.push(await hitsHtml(host, options, hitsCursor));
  return renderFramed(options.q === "" ? "Sessions" : `Sessions: ${options.q}`, "list", parts.join(""));
}

function formHtml({ q, cwd, sort, archived, named, output, others }: ListOptions, host: ViewHost): string {
  const options = Object.entries(SORTS).map(
    ([value, word]) => `<option value="${value}"${value === sort ? " selected" : ""}>${word}</option>`,
  );
  const tick = (name: string, word: string, is: boolean): string =>
    `<label class="tick"><input type="checkbox" name="${name}" value="1"${is ? " checked" : ""}>${word}</label>`;
  return `<form class="ask" role="search" action="${PLACES.list}">
<label class="whole">Names and everything said<input type="search" name="q" value="${escapeHtml(q)}"></label>
<label class="wide">Directory<input type="text" name="cwd" value="${escapeHtml(toTildePath(cwd, host))}" placeholder="all"></label>
<label>Sort<select name="sort">${options.join("")}</select></label>
${tick("output", "Output of tools, too", output)}${tick("named", "Named", named)}${tick("archived", "Archived", archived)}${host.agents === undefined ? tick("others", "Other agents, too", others) : ""}
<button>Show</button></form>
`;
}

async function sessionsHtml(host: ViewHost, options: ListOptions, cursor: string | undefined): Promise<string> {
  const { q, cwd, sort, archived, named } = options;
  const isSearch = q !== "";
  const { sessions, total, nextCursor } = await host.ask("list_sessions", {
    query: isSearch ? q : undefined,
    cwd: cwd === "" ? undefined : cwd,
    archived: archived || undefined,
    named: named || undefined,
    agents: agentsOf(options, host),
    sort,
    cursor,
    limit: isSearch && cursor === undefined ? NAMED : SESSIONS,
  });
  const about = isSearch ? "Found in names, first questions and directories" : archived ? "Archived" : "";
  const count = `<p class="dim">${formatCount(total, "session")}${cwd === "" ? "" : ` of ${escapeHtml(toTildePath(cwd, host))}`}</p>`;
  const head = about === "" ? "" : `<h2>${about}</h2>\n`;
  const next = nextCursor && `<a href="${makeHref(PLACES.list, { ...queryOf(options), cursor: nextCursor })}">More</a>`;
  const first =
    cursor === undefined ? "" : `<a href="${makeHref(PLACES.list, queryOf(options))}">From the beginning</a>`;
  const ways = next || first ? `<p class="next">${next ?? ""}${first}</p>` : "";
  return `${head}${count}<ul class="rows">${rowsHtml(sessions, host, options)}</ul>\n${ways}`;
}

/** Levels of forks that are indented; deeper ones are level with the last. */
const LEVELS = 6;

/** Returns the sessions of a page, forks below the sessions that they come from where these are on it, too. */
function rowsHtml(sessions: readonly ShownSession[], host: ViewHost, options: ListOptions): string {
  const byId = new Map(sessions.map((session) => [session.sessionId, session]));
  const parentOf = (session: ShownSession): ShownSession | undefined => {
    const parent = byId.get(session.forkedFrom?.sessionId ?? "");
    return parent === session ? undefined : parent;
  };
  let html = "";
  let level = -1;
  for (const { session, depth } of arrangeFamilies(sessions, parentOf)) {
    const next = Math.min(depth, LEVELS - 1);
    if (next > level) html += level < 0 ? "" : '<ul class="rows">';
    else html += `</li>\n${"</ul></li>\n".repeat(level - next)}`;
    html += `<li>${sessionHtml(session, host, options)}`;
    level = next;
  }
  return level < 0 ? "" : `${html}</li>\n${"</ul></li>\n".repeat(level)}`;
}

export function getSessionTitle({ name, firstMessage }: Pick<ShownSession, "name" | "firstMessage">): string {
  const text = (name?.trim() || firstMessage || "").slice(0, 300).replace(/\s+/g, " ").trim();
  return text === "" ? NOTHING_SAID : text;
}

function sessionHtml(row: ShownSession, host: ViewHost, options: ListOptions): string {
  const { sessionPath, sessionId, shortId, cwd, name, firstMessage, modified, messageCount, sizeBytes } = row;
  const tags = [row.archived ? "archived" : "", row.store === "v2" ? "V2" : "", escapeHtml(row.agent ?? "")].filter(
    Boolean,
  );
  const tagged = tags.map((tag) => ` <span class="tag">${tag}</span>`).join("");
  const first = name !== null && firstMessage !== null ? firstMessage.slice(0, 200).replace(/\s+/g, " ") : "";
  const facts = [
    renderAgo(modified, host.now()),
    formatCount(messageCount, "message"),
    formatSize(sizeBytes),
    row.cost === undefined || row.cost === 0 ? "" : formatCost(row.cost),
    cwd === null
      ? ""
      : `<a href="${makeHref(PLACES.list, { ...queryOf(options), cwd })}">${escapeHtml(toTildePath(cwd, host))}</a>`,
    row.forkedFrom === undefined
      ? ""
      : `fork of <a href="${makeHref(PLACES.family, { id: sessionId })}">${escapeHtml(row.forkedFrom.name ?? row.forkedFrom.sessionId)}</a>`,
    escapeHtml(shortId ?? ""),
  ];
  const said = first === "" ? "" : `<p class="said">${renderMarked(first, options.q)}</p>`;
  const title = renderMarked(getSessionTitle(row), options.q);
  return `<a href="${makeSessionHref(sessionPath, sessionId)}">${title}</a>${tagged}${said}<p>${facts.filter(Boolean).join(" · ")}</p>`;
}

async function hitsHtml(host: ViewHost, options: ListOptions, cursor: string | undefined): Promise<string> {
  const { q, cwd, output } = options;
  const { hits, nextCursor } = await host.ask("search_sessions", {
    query: q,
    cwd: cwd === "" ? undefined : cwd,
    agents: agentsOf(options, host),
    in: ["user", "assistant", "toolCall", ...(output ? ["toolResult", "bashExecution"] : [])],
    cursor,
    limit: HITS,
  });
  const rows = hits.map((hit: SearchHit) => hitHtml(hit, host, q));
  const next =
    nextCursor && `<a href="${makeHref(PLACES.list, { ...queryOf(options), hits: nextCursor })}">More places</a>`;
  const none = rows.length === 0 ? '<p class="dim">Found nowhere.</p>' : "";
  return `<h2>Found in messages and calls</h2>\n${none}<ul class="rows">${rows.join("")}</ul>\n${next ? `<p class="next">${next}</p>` : ""}`;
}

interface SearchHit extends Pick<ShownSession, "sessionPath" | "sessionId" | "name" | "firstMessage" | "cwd"> {
  readonly entryId: string;
  readonly role: string;
  readonly tool?: string;
  readonly line: string;
  readonly at: string | null;
}

function hitHtml(hit: SearchHit, host: ViewHost, q: string): string {
  const { sessionPath, sessionId, entryId, role, tool, line, at, cwd } = hit;
  const who = role === "user" ? "you" : (tool ?? role);
  const facts = [escapeHtml(who), renderAgo(at, host.now()), cwd === null ? "" : escapeHtml(toTildePath(cwd, host))];
  return `<li><a href="${makeSessionHref(sessionPath, sessionId, entryId)}">${escapeHtml(getSessionTitle(hit))}</a><p class="said">${renderMarked(line, q)}</p><p>${facts.filter(Boolean).join(" · ")}</p></li>\n`;
}
