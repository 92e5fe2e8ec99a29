/** The frame of the pages of `view`: where one is, and what leads elsewhere. */

import { toAnchorName } from "../core/export/page.ts";
import { makeWordsPattern, parseQuery } from "../core/search/query.ts";
import { escapeHtml } from "../page/escape.ts";
import { STYLE } from "../page/style.ts";
import { type AskFailed, makeHtmlAnswer, type ViewAnswer, type ViewHost } from "./answer.ts";

/** Addresses below the folder of all addresses. */
export const PLACES = {
  list: "./",
  costs: "costs",
  session: "session",
  family: "family",
  events: "events",
  style: "view.css",
  barStyle: "bar.css",
  script: "live.js",
} as const;

/** Levels of a family that are indented. */
export const FAMILY_LEVELS = 10;

const INDENTS = Array.from(
  { length: FAMILY_LEVELS },
  (_, i) => `.rows>.level${i + 1}{margin-left:min(${i + 1}rem,${(i + 1) * 4}vw)}`,
).join("\n");

/** The bar above every page. On that of a session it stays in view, because it says whether the page is live. */
const BAR = `
nav.bar{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;align-items:center;max-width:58rem;margin:0 auto;padding:.6rem 1.25rem;font-size:.9rem;border-bottom:1px solid var(--line)}
nav.bar a{padding:.2rem 0}
nav.bar a[aria-current]{color:var(--fg);font-weight:650;text-decoration:none}
nav.bar .live{margin-left:auto;color:var(--dim)}
nav.bar .tag{display:inline-block;border:1px solid var(--line);border-radius:1rem;padding:0 .5rem;font-size:.75rem;color:var(--fg);font-weight:400;white-space:nowrap;unicode-bidi:isolate}
.live[data-state=on]::before{content:"";display:inline-block;width:.55rem;height:.55rem;border-radius:50%;background:var(--addfg);margin-right:.4rem}
.live[data-state=off]{color:var(--bad)}
button.news{position:fixed;right:1rem;bottom:1rem;padding:.5rem 1rem;font:inherit;font-size:.9375rem;color:var(--fg);background:var(--bg);border:2px solid var(--userline);border-radius:2rem;z-index:2;cursor:pointer}
.news[hidden]{display:none}
@media (max-width:40rem){nav.bar{padding:.5rem .75rem}nav.bar .live{margin-left:0}}
@media (min-width:40.01rem) and (min-height:30rem){html:has(nav .live){scroll-padding-top:4rem}nav.bar:has(.live){position:sticky;top:0;z-index:2;background:var(--bg)}html:has(nav .live) .pathbar{top:3.5rem}html:has(nav .live):has(.pathbar:not([hidden])){scroll-padding-top:9rem}}
@media (min-width:160rem){nav.bar{font-size:1rem}}
@media print{nav.bar,.news{display:none}}
`;

const PAGES = `
form.ask{display:flex;flex-wrap:wrap;gap:.6rem 1rem;align-items:end;margin:1rem 0 1.5rem}
form.ask label{display:flex;flex-direction:column;gap:.15rem;font-size:.8125rem;color:var(--dim);min-width:0}
form.ask .whole{flex:1 1 100%}
form.ask .wide{flex:1 1 9rem}
form.ask .tick{flex-direction:row;align-items:center;gap:.4rem;padding:.45rem 0}
form.ask :is(input[type=search],input[type=text],select,button){font:inherit;font-size:.9375rem;color:var(--fg);background:var(--bg);border:1px solid var(--dim);border-radius:6px;padding:.35rem .6rem;height:2.35rem;max-width:100%;min-width:0}
form.ask button{cursor:pointer;background:var(--soft)}
.rows{list-style:none;margin:0;padding:0}
.rows>li{border-bottom:1px solid var(--line);padding:.6rem .25rem}
.rows .rows{margin:.5rem 0 0;padding-left:1rem;border-left:3px solid var(--line)}
.rows .rows>li:last-child{border-bottom:0;padding-bottom:0}
.rows a{font-weight:600;overflow-wrap:anywhere;unicode-bidi:isolate}
.rows p{margin:.1rem 0;font-size:.875rem;color:var(--dim);overflow-wrap:anywhere}
.rows .said{color:var(--fg)}
.rows p,.rows p>a,.rows .tag,.sums td{unicode-bidi:isolate}
.rows p a{font-weight:400}
.rows .tag{display:inline-block;border:1px solid var(--line);border-radius:1rem;padding:0 .5rem;font-size:.75rem;color:var(--fg);font-weight:400;white-space:nowrap}
.rows mark,.said mark{padding:0 .15em;font-size:inherit}
.next{margin:1.5rem 0;display:flex;gap:1.5rem;flex-wrap:wrap}
.sums td:not(:first-child),.sums th:not(:first-child){text-align:end;font-variant-numeric:tabular-nums;white-space:nowrap}
.sums td:first-child{overflow-wrap:anywhere;min-width:8rem}
.warn{border:1px solid var(--bad);border-left-width:4px;border-radius:8px;padding:.5rem 1rem;background:var(--badbg)}
@media (max-width:40rem){.sums :is(td,th):nth-child(4){display:none}}
@media print{form.ask,.next{display:none}}
`;

/** The style sheet of all pages of `view`: that of exported pages, and what these have besides. */
export const VIEW_STYLE = `${STYLE}${BAR}${PAGES}${INDENTS}\n`;

/** The style that an exported page needs besides its own: of nothing that it has itself. */
export const BAR_STYLE = BAR;

/** Returns the bar above a page; `more` is HTML for its end. */
export function renderBar(current: "list" | "costs" | "other", more = ""): string {
  const link = (place: "list" | "costs", word: string): string =>
    `<a href="${PLACES[place]}"${current === place ? ' aria-current="page"' : ""}>${word}</a>`;
  return `<nav class="bar" id="view.bar" aria-label="Viewer">${link("list", "Sessions")}${link("costs", "Costs")}${more}</nav>\n`;
}

/** Returns a page of ours; the title is text, the rest is HTML. */
export function renderFramed(
  title: string,
  current: "list" | "costs" | "other",
  inside: string,
  status = 200,
): ViewAnswer {
  return makeHtmlAnswer(
    `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)}</title>
<link rel="stylesheet" href="${PLACES.style}">
</head>
<body>
<a class="skip" href="#view.main">To the content</a>
${renderBar(current)}<main class="page" id="view.main">
<h1>${escapeHtml(title)}</h1>
${inside}
</main>
</body>
</html>
`,
    status,
  );
}

/** Statuses of failures that are not the server's. */
const STATUSES: Readonly<Record<string, number>> = {
  session_not_found: 404,
  entry_not_found: 404,
  not_a_session: 404,
  path_outside_root: 404,
  cursor_expired: 410,
  invalid_params: 400,
  message_too_large: 413,
};

/** Returns the HTTP status of a failure. */
export function getHttpStatus({ failure }: AskFailed): number {
  return STATUSES[failure] ?? 500;
}

/** Returns the page that says why something cannot be shown. */
export function renderFailedPage(error: AskFailed): ViewAnswer {
  const isExpired = error.failure === "cursor_expired";
  const sentence = isExpired ? "The list has changed since its first page was read. Begin again." : error.message;
  const instead = error.instead === undefined ? "" : `<p>${error.instead}</p>`;
  const inside = `<p class="warn">${escapeHtml(sentence)}</p>${instead}<p><a href="${PLACES.list}">All sessions</a></p>`;
  return renderFramed("This cannot be shown", "other", inside, getHttpStatus(error));
}

/** Returns an address below the folder of all addresses, as it stands in an attribute. */
export function makeHref(
  place: string,
  query: Readonly<Record<string, string | undefined>> = {},
  entryId = "",
): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") params.set(name, value);
  const name = toAnchorName(entryId);
  const hash = name === undefined ? "" : `#${name}`;
  return escapeHtml(`${place}${params.size > 0 ? `?${params}` : ""}${hash}`);
}

/** Returns the address of a session's page. The id finds a session that has been moved since. */
export function makeSessionHref(sessionPath: string, sessionId: string, entryId = ""): string {
  return makeHref(PLACES.session, { path: sessionPath, id: sessionId }, entryId);
}

/** Returns a path with the home folder as `~`. */
export function toTildePath(path: string, { home }: ViewHost): string {
  if (home === undefined || home === "" || home === "/") return path;
  return path === home ? "~" : path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}

/** Returns the directory that a person typed, which may begin with `~`. */
export function parseDirectory(query: URLSearchParams, { home }: ViewHost): string {
  const typed = (query.get("cwd") ?? "").trim();
  return home !== undefined && /^~(?=\/|$)/.test(typed) ? home + typed.slice(1) : typed;
}

const UNITS = [
  [60_000, "minute"],
  [3_600_000, "hour"],
  [86_400_000, "day"],
  [2_592_000_000, "month"],
  [31_536_000_000, "year"],
] as const;

/** Returns how long ago a moment was, with the moment itself for those who point at it. */
export function renderAgo(iso: string | null, now: number): string {
  const moment = iso === null ? Number.NaN : Date.parse(iso);
  if (Number.isNaN(moment)) return "";
  const passed = now - moment;
  const unit = UNITS.findLast(([length]) => passed >= length);
  const amount = unit ? Math.floor(passed / unit[0]) : 0;
  const text = unit ? `${amount} ${unit[1]}${amount === 1 ? "" : "s"} ago` : "just now";
  const exact = escapeHtml(iso ?? "");
  return `<time datetime="${exact}" title="${exact}">${text}</time>`;
}

/** Returns text as HTML with the words of a search marked. */
export function renderMarked(text: string, query: string): string {
  const words = (parseQuery(query) ?? []).slice(0, 20).map((word) => word.slice(0, 200));
  if (words.length === 0) return escapeHtml(text);
  const parts = text.split(makeWordsPattern(words));
  return parts.map((part, i) => (i % 2 === 1 ? `<mark>${escapeHtml(part)}</mark>` : escapeHtml(part))).join("");
}
