/** The tool recent: the latest sessions, one line each. */

import type { RecallSession } from "../../server/recall-module.ts";
import { makeCursor, readCursor, requestOf } from "./cursors.ts";
import { agentsParam, cursorParam, projectParam, sinceParam, untilParam } from "./params.ts";
import { findOwnSession, formatHead, formatSession, readScope, type Tool, toBytesOf } from "./shared.ts";
import { AnswerText, cutBytes } from "./texts.ts";

const USUAL_ROWS = 20;
const LIVE_MS = 5 * 60_000;
/** Sessions that are asked for at once, how often that is done, and bytes of one on its line. */
const PAGE = 5;
const MOST_PAGES = 60;
const ROW_BYTES = 400;
const SORTS: Readonly<Record<string, string>> = { time: "modified", cost: "cost", size: "size" };

export const recent: Tool = {
  name: "recent",
  title: "List sessions",
  description:
    "List past sessions of every agent, the latest first: ref, agent, time, directory, messages, cost, title. Use it to see what " +
    "was done lately, here (project: here) or anywhere, or what runs now (live). Go on with open, tree or find.",
  operands: ["project"],
  params: {
    project: projectParam,
    agents: agentsParam,
    since: sinceParam,
    until: untilParam,
    live: { type: "boolean", description: "only those written to now" },
    named: { type: "boolean", description: "only those with a name" },
    sort: { type: "string", oneOf: Object.keys(SORTS) },
    limit: { type: "integer", most: 50, description: `default ${USUAL_ROWS}` },
    cursor: cursorParam,
  },
  async run(call) {
    const { library, args, redaction } = call;
    const { world } = library;
    const place = readCursor<{ readonly next: string }>(args.cursor, "recent", requestOf(args));
    const scope = readScope(call);
    const limit = Number(args.limit ?? USUAL_ROWS);
    const own = await findOwnSession(library);
    // A fork in which nothing was said yet has the time at which it was made.
    const isLive = ({ modified, created, parentSession, lockedBy }: RecallSession): boolean =>
      lockedBy !== undefined ||
      (modified !== null && !(parentSession && modified === created) && world.now() - Date.parse(modified) < LIVE_MS);
    const { cwd, agents, since } = scope;
    const total = cwd === undefined && agents === undefined && since === undefined ? undefined : await library.count();
    const params = {
      ...scope,
      ...(args.named === true ? { named: true } : {}),
      sort: SORTS[String(args.sort ?? "time")],
    };
    const counted = await library.count(params);
    const answer = new AnswerText(toBytesOf(undefined, 2200));
    let next = place?.next;
    let shown = 0;
    // Sessions that are filtered here take pages of their own.
    for (let pages = 0; shown < limit && pages < MOST_PAGES && answer.room > PAGE * ROW_BYTES; pages++) {
      const wanted = args.live === true ? PAGE : Math.min(PAGE, limit - shown);
      const page = await library.list({ ...params, cursor: next, limit: wanted, holders: true });
      for (const session of page.sessions) {
        if (args.live === true && !isLive(session)) continue;
        const { sessionId: id } = session;
        const mark = own.surely.includes(id) ? "this session" : own.perhaps.includes(id) ? "perhaps this session" : "";
        answer.add(cutBytes(formatSession(session, library, redaction, mark === "" ? [] : [mark]), ROW_BYTES - 2).text);
        shown++;
      }
      next = page.nextCursor;
      if (next === undefined) break;
    }
    const head = formatHead(library, {
      matching: counted.total,
      total: total?.total,
      lists: [counted],
    });
    if (answer.isEmpty) return answer.finish(head, "No session is in this scope.");
    const foot =
      next === undefined
        ? "That is all."
        : `More with the same request and cursor: ${makeCursor("recent", requestOf(args), { next })}`;
    return answer.finish(head, foot, "\n");
  },
};
