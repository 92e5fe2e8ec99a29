import * as z from "zod";
import { bytesOf } from "../core/json/json.ts";
import { moment } from "./list_sessions.ts";
import { command } from "./shared/command.ts";
import { pageEnd } from "./shared/page.ts";
import { cursor, limit, nextCursor } from "./shared/shapes.ts";

/** Hits on a page, unless the host sets a limit. */
const PAGE = 50;

export default command({
  name: "search_sessions",
  summary: "Finds messages of all sessions and branches that contain all the given words or parts of words.",
  effect: "server",
  repeatable: true,
  params: {
    query: z
      .string()
      .describe(
        'words, or "several words" in quotation marks; all must be there, in any case, also inside other words',
      ),
    cwd: z.string().optional().describe("only sessions of exactly this working directory"),
    role: z
      .enum(["user", "assistant", "toolResult", "bashExecution"])
      .optional()
      .describe("only messages of this role; user and assistant by default"),
    since: z.string().optional().describe("only messages of this time or later, ISO 8601"),
    until: z.string().optional().describe("only messages of this time or earlier"),
    includeToolResults: z.boolean().optional().describe("also the output of tools and commands"),
    cursor,
    limit: limit.describe(`at most this many; ${PAGE} by default`),
  },
  result: z.object({
    hits: z.array(
      z.object({
        sessionPath: z.string(),
        sessionId: z.string(),
        entryId: z.string(),
        role: z.string(),
        snippet: z.string().describe("one line around the first word found"),
        onActivePath: z.boolean().describe("whether the entry is on the path to the session's leaf"),
      }),
    ),
    nextCursor,
  }),
  failures: ["cursor_expired"],
  example: {
    params: { query: "auth module" },
    result: {
      hits: [
        {
          sessionPath: "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e.jsonl",
          sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
          entryId: "a1b2c3d4",
          role: "user",
          snippet: "Refactor the auth module.",
          onActivePath: true,
        },
      ],
    },
  },
  async run(context, params) {
    const { includeToolResults: toolResults, limit = PAGE, ...request } = params;
    const times = { since: moment("since", params.since), until: moment("until", params.until) };
    const { sessions, stores } = context.workspace;
    const isActive = (path: string, entryId: string): boolean | undefined => {
      const open = sessions.find(({ file, log }) => file === path && log.persisted);
      if (!open) return undefined;
      const position = open.log.nodes.position(entryId);
      return position < 0 ? undefined : open.tree.isAncestor(position, open.tree.leaf);
    };
    const wanted = { ...request, ...times, toolResults, limit, isActive };
    const { hits, more } = await stores.catalog.search(wanted, context.progress);
    const shown = hits.map(({ path, sessionId, entryId, role, snippet, onActivePath }) => ({
      sessionPath: path,
      sessionId,
      entryId,
      role,
      snippet,
      onActivePath,
    }));
    const past = pageEnd(context, limit, hits.length, 0, (i) => bytesOf(JSON.stringify(shown[i])));
    return { hits: shown.slice(0, past), nextCursor: past < hits.length || more ? hits[past - 1].cursor : undefined };
  },
});
