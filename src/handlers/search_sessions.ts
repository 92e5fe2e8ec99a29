import * as z from "zod";
import { BadParams } from "../core/failure.ts";
import { toBytes } from "../core/json/json.ts";
import { type Hit, SEARCH_PARTS, type SearchRequest } from "../core/ports/catalog.ts";
import { formatTime } from "../core/search/listing.ts";
import { agentMember, agentsParam, toAgentNames } from "./shared/agents.ts";
import { defineCommand } from "./shared/command.ts";
import { hereParam, limited, remoteMember } from "./shared/fleet.ts";
import { findPageEnd } from "./shared/page.ts";
import { readMoment } from "./shared/params.ts";
import { makeTextRedaction } from "./shared/redaction.ts";
import { behind, cursor, limit, nextCursor, unreadFile, wantedDirectory, within } from "./shared/shapes.ts";

/** Hits on a page, unless the host sets a limit. */
const PAGE = 50;
/** Characters of a session's first message that a hit has. */
const FIRST_MESSAGE = 100;
/**
 * The most that a request may ask for: a search folds and copies its query and its file, so that a file of 10 MB took
 * 1.1 GB. A query has room for a long paragraph, and a file for a directory and a path in it of 4,096 characters each;
 * the index takes none that are longer. Tools are cut to the compared length, and a host may ask for every one it
 * knows.
 */
const MOST = { query: 1 << 16, file: 8192, tool: 1 << 20, tools: 10_000 };

export default defineCommand({
  name: "search_sessions",
  summary:
    "Finds messages and tool calls of all sessions and branches that contain all the given words or parts of words.",
  effect: "server",
  repeatable: true,
  params: {
    query: z
      .string()
      .max(MOST.query)
      .optional()
      .describe(
        'words, or "several words" in quotation marks; all must be there, in any case, also inside other words; ' +
          "needed unless `tool`, `file` or `failed` is given",
      ),
    cwd: wantedDirectory,
    agents: agentsParam,
    role: z
      .enum(["user", "assistant", "toolResult", "bashExecution"])
      .optional()
      .describe("only messages of this role; user and assistant by default"),
    in: z
      .array(z.enum(SEARCH_PARTS))
      .min(1)
      .optional()
      .describe(
        "only these parts: what users and assistants say, `toolCall` (what tools are given, and commands that the user " +
          "runs), `toolResult`, `bashExecution` (such a command with its output); user and assistant by default, and with " +
          "`tool` or `file` where these can be",
      ),
    tool: z
      .union([z.string().min(1).max(MOST.tool), z.array(z.string().min(1).max(MOST.tool)).min(1).max(MOST.tools)])
      .optional()
      .describe("only calls of this tool, or one of these, and their results; `in` can choose among these"),
    file: z
      .string()
      .min(1)
      .max(MOST.file)
      .optional()
      .describe(
        "only calls that name this file in an argument, a command or a patch: its path, or whole names at the path's end",
      ),
    since: z.string().optional().describe("only messages of this time or later, ISO 8601"),
    until: z.string().optional().describe("only messages of this time or earlier"),
    includeToolResults: z.boolean().optional().describe("also the output of tools and commands"),
    failed: z
      .boolean()
      .optional()
      .describe("only the output of tools that failed, and of commands that the user ran and that did not end with 0"),
    here: hereParam,
    ranked: z
      .boolean()
      .optional()
      .describe(
        "the best texts first, which need not have all of the words, and an answer in place of its question; on the " +
          "sessions of this machine only, and with half of the words where there is no index",
      ),
    within,
    redact: z
      .boolean()
      .optional()
      .describe("find and show texts without their secrets, as an export with this setting has them"),
    cursor,
    limit: limit.describe(`at most this many; ${PAGE} by default`),
  },
  result: () =>
    z.object({
      hits: z.array(
        z.object({
          sessionPath: z.string(),
          sessionId: z.string(),
          entryId: z.string(),
          role: z.string(),
          snippet: z.string().describe("one line around the first word found"),
          onActivePath: z.boolean().describe("whether the entry is on the path to the session's leaf"),
          part: z.enum(SEARCH_PARTS).describe("which part of the entry"),
          tool: z.string().optional().describe("which tool was called, or gave this result"),
          line: z
            .string()
            .describe(
              "the line of the text with most of the words, or with failed alone the one that says what failed; a long one is cut",
            ),
          at: z.string().nullable().describe("when it was said or called"),
          shortId: z
            .string()
            .describe("the beginning of sessionId, of 8 characters or more, that no other session has"),
          name: z.string().nullable().describe("of the session"),
          firstMessage: z
            .string()
            .nullable()
            .describe(`the first ${FIRST_MESSAGE} characters of what the user said first in the session`),
          cwd: z.string().nullable(),
          agent: agentMember,
          isRemote: remoteMember,
          score: z.number().optional().describe("with ranked: how well it fits"),
          isArchived: z
            .literal(true)
            .optional()
            .describe("whether the session is archived, so that lists leave it out"),
          inheritedFrom: z
            .object({ sessionId: z.string(), name: z.string().nullable() })
            .optional()
            .describe("the session that had this entry first: this one is a fork of it, or of a fork of it"),
        }),
      ),
      notRead: z
        .array(unreadFile())
        .optional()
        .describe("with agents: files where sessions are kept that none can be read from; only on the first page"),
      nextCursor,
      begins: z
        .string()
        .optional()
        .describe("with ranked: the cursor of the first page, without texts that are added later"),
      behind,
      limited,
    }),
  failures: ["cursor_expired"],
  example: {
    params: { query: "npm run migrate", in: ["user", "assistant", "toolCall"] },
    result: {
      hits: [
        {
          sessionPath: "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e.jsonl",
          sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
          entryId: "a1b2c3d4",
          role: "assistant",
          snippet: "npm run migrate -- --dry-run",
          onActivePath: true,
          part: "toolCall",
          tool: "bash",
          line: "npm run migrate -- --dry-run",
          at: "2026-01-24T16:40:02.117Z",
          shortId: "01991f6e",
          name: "Refactor auth",
          firstMessage: "Refactor the auth module.",
          cwd: "/home/me/app",
        },
      ],
    },
  },
  async run(context, params) {
    const {
      includeToolResults: toolResults,
      in: parts,
      tool,
      query = "",
      limit = PAGE,
      agents,
      redact,
      ...request
    } = params;
    if (params.query === undefined && tool === undefined && params.file === undefined && !params.failed)
      throw new BadParams([{ path: "query", message: "is needed where none of tool, file and failed is given" }]);
    const times = { since: readMoment("since", params.since), until: readMoment("until", params.until) };
    const { sessions, stores } = context.workspace;
    const isActive = (path: string, entryId: string): boolean | undefined => {
      const open = sessions.find(({ file, log }) => file === path && log.persisted);
      if (!open) return undefined;
      const position = open.log.nodes.position(entryId);
      return position < 0 ? undefined : open.tree.isAncestor(position, open.tree.leaf);
    };
    const tools = typeof tool === "string" ? [tool] : tool;
    const wanted: SearchRequest = {
      ...request,
      agents: toAgentNames(agents),
      ...times,
      query,
      parts,
      tools,
      toolResults,
      limit,
      isActive,
      ...(redact ? { redact: await makeTextRedaction(stores.home) } : {}),
      ...(request.ranked ? { here: true } : {}),
    };
    const { hits, more, begins, behind, limited, notRead = [] } = await stores.catalog.search(wanted, context.progress);
    const shown = hits.map((hit) => toRow(hit, wanted.redact));
    const past = findPageEnd(context, limit, hits.length, 0, (i) => toBytes(JSON.stringify(shown[i])));
    const hasMore = hits.length > 0 && (past < hits.length || more);
    return {
      hits: shown.slice(0, past),
      ...(notRead.length > 0 ? { notRead } : {}),
      nextCursor: hasMore ? hits[past - 1].cursor : undefined,
      begins,
      behind,
      limited,
    };
  },
});

function toRow(
  { path, sessionId, entryId, role, snippet, onActivePath, part, tool, line, at, ...hit }: Hit,
  redact = (text: string): string => text,
) {
  const { shortId, inheritedFrom } = hit;
  const { name, firstMessage, cwd, agent, isRemote, archived } = hit.session;
  return {
    sessionPath: path,
    sessionId,
    entryId,
    role,
    snippet,
    onActivePath,
    part,
    tool,
    line,
    at: formatTime(at),
    shortId,
    name: name === null ? null : redact(name),
    // It is cut after its secrets are removed, else a half of one is left.
    firstMessage: firstMessage === null ? null : redact(firstMessage).slice(0, FIRST_MESSAGE),
    cwd,
    agent,
    isRemote,
    score: hit.score,
    ...(archived ? { isArchived: true as const } : {}),
    inheritedFrom: inheritedFrom && {
      sessionId: inheritedFrom.id,
      name: inheritedFrom.name === null ? null : redact(inheritedFrom.name),
    },
  };
}
