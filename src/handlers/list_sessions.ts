import * as z from "zod";
import { BadParams } from "../core/failure.ts";
import { toBytes } from "../core/json/json.ts";
import type { Listed, Listing, ListProgress } from "../core/ports/catalog.ts";
import { formatTime } from "../core/search/listing.ts";
import { agentMember, agentsParam, toAgentNames } from "./shared/agents.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { hereParam, limited, remoteMember } from "./shared/fleet.ts";
import { findPageEnd } from "./shared/page.ts";
import { readMoment } from "./shared/params.ts";
import { behind, cursor, holder, limit, nextCursor, unreadFile, wantedDirectory, within } from "./shared/shapes.ts";

export default defineCommand({
  name: "list_sessions",
  summary:
    "Lists sessions, the one with the latest message, or that was created last, first; --continue goes by " +
    "the last change instead. Changes nothing.",
  effect: "server",
  repeatable: true,
  params: {
    cwd: wantedDirectory,
    agents: agentsParam,
    query: z
      .string()
      .optional()
      .describe(
        "only sessions that have all these words in name, labels, first message, working directory or id; (nothing said): those without a name and a message",
      ),
    name: z.string().optional().describe("only sessions whose name contains this, in any case"),
    named: z.boolean().optional().describe("only sessions with a name"),
    unnamed: z.boolean().optional().describe("only sessions without a name"),
    top: z.boolean().optional().describe("only sessions that are no forks; those of subagents are forks"),
    parent: z.string().optional().describe("only forks of this session, by its path or id"),
    since: z.string().optional().describe("only sessions whose `modified` is this time or later, ISO 8601"),
    until: z.string().optional().describe("only sessions whose `modified` is before this time, ISO 8601"),
    archived: z.boolean().optional().describe("archived sessions instead of the others"),
    headerOnly: z.boolean().optional().describe("also sessions without any entry, which are left out by default"),
    sort: z
      .enum(["modified", "created", "name", "size", "cost"])
      .optional()
      .describe(
        "modified (default) and created: newest first; name: in alphabetical order; size and cost: the largest first, " +
          "which for cost reads the messages of all sessions when it is first asked for",
      ),
    quick: z
      .boolean()
      .optional()
      .describe(
        "with cwd: a first screen at once, of sessions in that directory's own folder whose files changed last; the " +
          "other params but limit and holders do not count",
      ),
    stream: z
      .boolean()
      .optional()
      .describe(
        "with a progress token: each report has `sessions`, the matching ones among those just read, unordered",
      ),
    here: hereParam,
    holders: z.boolean().optional().describe("also name the other process that writes to each"),
    within,
    cursor,
    limit,
  },
  result: () =>
    z.object({
      sessions: z.array(
        z.object({
          sessionPath: z.string(),
          sessionId: z.string(),
          cwd: z.string().nullable(),
          name: z.string().nullable(),
          parentSession: z
            .string()
            .nullable()
            .describe("file of the session this one was forked from, as its header has it"),
          created: z.string().nullable(),
          modified: z
            .string()
            .nullable()
            .describe(
              "when a user or the model said something last, or `created` if that is later, as in a fork; never the " +
                "time of the file",
            ),
          messageCount: z
            .number()
            .int()
            .describe(
              "of long files of other agents, counted without reading all of them, so that it may be off by some",
            ),
          firstMessage: z.string().nullable().describe("the first 1,000 characters of what the user said first"),
          sizeBytes: z.number().int(),
          shortId: z
            .string()
            .optional()
            .describe(
              "the beginning of the id, 8 characters or more, that no other session's id has; not while streamed",
            ),
          archived: z.boolean(),
          store: z.enum(["jsonl", "v2", "foreign"]),
          agent: agentMember,
          isRemote: remoteMember,
          isDamaged: z
            .literal(true)
            .optional()
            .describe("a list saw damage, though it looks only at how lines begin; verify_session reads all"),
          cost: z
            .number()
            .optional()
            .describe(
              "of the work in this session; missing unless a request has asked for cost or usage since it changed, and if no price " +
                "of its tokens is known, as of most other agents",
            ),
          forkedFrom: z
            .object({ sessionId: z.string(), name: z.string().nullable() })
            .optional()
            .describe("the session it was forked from, if that still exists; not while streamed"),
          lockedBy: holder().optional().describe("with holders: another process that writes to it; not while streamed"),
        }),
      ),
      total: z.number().int().describe("matching sessions, on all pages"),
      totalBytes: z.number().int().optional().describe("of these sessions; missing with a fleet and with quick"),
      notRead: z
        .array(unreadFile())
        .optional()
        .describe("files where sessions are kept that none can be read from; only on the first page of a list of all"),
      isPartial: z.literal(true).optional().describe("with quick: there may be more, which a whole list has"),
      nextCursor,
      behind,
      limited,
    }),
  failures: ["cursor_expired"],
  example: {
    params: { cwd: "/home/me/app", limit: 1 },
    result: {
      sessions: [
        {
          sessionPath: "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e.jsonl",
          sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
          cwd: "/home/me/app",
          name: "Refactor auth",
          parentSession: null,
          created: "2026-01-24T16:22:26.831Z",
          modified: "2026-01-24T16:40:02.117Z",
          messageCount: 12,
          firstMessage: "Refactor the auth module.",
          sizeBytes: 48213,
          shortId: "01991f6e",
          archived: false,
          store: "jsonl",
        },
      ],
      total: 1,
      totalBytes: 48213,
    },
  },
  async run(context, params) {
    const { since, until, limit, stream, quick, holders, agents, ...request } = params;
    if (quick === true) return glance(context, params.cwd, limit, holders);
    const wanted = {
      ...request,
      agents: toAgentNames(agents),
      since: readMoment("since", since),
      until: readMoment("until", until),
      most: limit,
    };
    const listing = await context.workspace.stores.catalog.list(wanted, progressOf(context, stream === true));
    const { found, total, totalBytes, limited } = listing;
    const shown = found.slice(0, limit);
    const heldBy = holdersOf(context, shown, holders);
    const sessions = shown.map((listed) => ({ ...toRow(listed), ...placeOf(listed, listing), ...heldBy(listed) }));
    const past = findPageEnd(context, limit, found.length, 0, (i) => toBytes(JSON.stringify(sessions[i])));
    return {
      sessions: past < sessions.length ? sessions.slice(0, past) : sessions,
      total,
      totalBytes,
      nextCursor: past < found.length ? listing.cursorAfter(found[past - 1]) : undefined,
      ...(listing.notRead?.length ? { notRead: listing.notRead } : {}),
      behind: listing.behind,
      limited,
    };
  },
});

/** Sessions of a first screen, unless the host says how many. */
const SCREEN = 50;

async function glance(context: CommandContext, cwd: string | undefined, limit = SCREEN, holders = false) {
  if (cwd === undefined) throw new BadParams([{ path: "cwd", message: "is needed with quick" }]);
  const found = await context.workspace.stores.catalog.glance(cwd, limit);
  const heldBy = holdersOf(context, found, holders);
  const sessions = found.map((listed) => ({ ...toRow(listed), ...heldBy(listed) }));
  return { sessions, total: sessions.length, isPartial: true as const };
}

/** Returns a function that returns the process that holds one of these sessions. */
function holdersOf({ workspace }: CommandContext, sessions: readonly Listed[], wanted = false) {
  if (!wanted) return () => ({});
  const found = workspace.stores.health.holders(sessions.map(({ path }) => path));
  return ({ path }: Listed) => (found.has(path) ? { lockedBy: found.get(path) } : {});
}

/** Returns the callback for progress. Too many sessions for one reply go into several reports with equal numbers. */
function progressOf(context: CommandContext, stream: boolean): ListProgress | undefined {
  const { progress } = context;
  if (!progress || !stream) return progress && ((done, total) => progress(done, total));
  return (done, total, found) => {
    const sessions = found.map(toRow);
    let from = 0;
    do {
      const past = findPageEnd(context, undefined, sessions.length, from, (i) => toBytes(JSON.stringify(sessions[i])));
      progress(done, total, { sessions: sessions.slice(from, past) });
      from = past;
    } while (from < sessions.length);
  };
}

function placeOf(listed: Listed, { parentOf, shortId }: Listing) {
  const parent = parentOf(listed);
  return {
    shortId: shortId(listed.id),
    forkedFrom: parent && { sessionId: parent.id, name: parent.name },
  };
}

function toRow(listed: Listed) {
  const {
    path,
    id,
    cwd,
    name,
    parentSession,
    messageCount,
    firstMessage,
    sizeBytes,
    archived,
    store,
    agent,
    cost,
    isRemote,
    isDamaged,
  } = listed;
  return {
    sessionPath: path,
    sessionId: id,
    cwd,
    name,
    parentSession,
    created: formatTime(listed.created),
    modified: formatTime(listed.modified),
    messageCount,
    firstMessage,
    sizeBytes,
    archived,
    store,
    agent,
    isRemote,
    isDamaged,
    cost,
  };
}
