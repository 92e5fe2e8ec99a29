import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { toBytes } from "../core/json/json.ts";
import type { DeletedElsewhere, FleetTrash, LifeCycle, Trashed } from "../core/ports/lifecycle.ts";
import { defineCommand } from "./shared/command.ts";
import { findPageEnd, parseIndex } from "./shared/page.ts";
import { cursor, limit, nextCursor } from "./shared/shapes.ts";

const item = z.object({
  itemPath: z.string().nullable().describe("its folder in the trash; null for a session that only the fleet has"),
  sessionPath: z
    .string()
    .describe(
      "where the session was; for leftovers, where the first of them was; with a null itemPath, its path after a restore",
    ),
  sessionId: z.string().nullable().describe("null for leftovers, which undo brings back"),
  name: z.string().nullable(),
  firstMessage: z.string().nullable().describe("the first 200 characters of what the user said first, if known"),
  deletedAt: z.string().describe("ISO 8601"),
  sizeBytes: z.number().int().describe("of all that is in it"),
  messageCount: z.number().int().nullable().describe("null when it is not known"),
  restored: z
    .literal(true)
    .optional()
    .describe("with a fleet: the session was restored since, on any machine, and this is a former copy of it"),
  fileCount: z.number().int().optional().describe("of leftovers: how many there are"),
});

export default defineCommand({
  name: "list_trash",
  summary:
    "Lists what the server's own trash has, and with a fleet the sessions that any machine deleted (the latest 1000), the newest " +
    "first. Nothing is ever removed from the trash but by restore_session, undo and empty_trash, and by people. Changes nothing.",
  effect: "server",
  repeatable: true,
  params: {
    sessionId: z.string().min(1).optional().describe("only sessions with this id, or with one that begins so"),
    cursor,
    limit,
  },
  result: () =>
    z.object({
      items: z.array(item),
      total: z.number().int(),
      totalBytes: z.number().int().describe("of the items that have an itemPath"),
      limited: z.string().optional().describe("with a fleet: why sessions that other machines deleted are missing"),
      desktopTrash: z
        .boolean()
        .describe(
          "whether delete_session gives sessions to the trash command, from where undo does not bring them back",
        ),
      nextCursor,
    }),
  failures: ["cursor_expired", "storage_failed"],
  example: {
    params: { limit: 1 },
    result: {
      items: [
        {
          itemPath: "/home/me/state/trash/deleted_01991f6e-1f1d-7c3e-b0a4-0242ac120004",
          sessionPath: "/home/me/sessions/deleted.jsonl",
          sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120004",
          name: null,
          firstMessage: "Refactor the auth module.",
          deletedAt: "2026-01-24T16:22:26.831Z",
          sizeBytes: 812,
          messageCount: 4,
        },
      ],
      total: 1,
      totalBytes: 812,
      desktopTrash: false,
    },
  },
  async run(context, { sessionId, limit, cursor }) {
    const { lifeCycle } = context.workspace.stores;
    const { deleted, restoredIds, limited } = await askFleet(lifeCycle);
    const all = [...lifeCycle.trash(), ...deleted]
      .filter((one) => sessionId === undefined || one.sessionId?.startsWith(sessionId))
      .sort((a, b) => (a.deletedAt < b.deletedAt ? 1 : a.deletedAt > b.deletedAt ? -1 : 0));
    const from = parseIndex(cursor, Math.max(all.length, 1));
    const rows = all.slice(from, limit === undefined ? undefined : from + limit).map((one) => toRow(one, restoredIds));
    const past = findPageEnd(context, limit, rows.length, 0, (i) => toBytes(JSON.stringify(rows[i])));
    return {
      items: rows.slice(0, past),
      total: all.length,
      totalBytes: all.reduce((sum, one) => sum + ("itemPath" in one ? one.sizeBytes : 0), 0),
      limited,
      desktopTrash: lifeCycle.usesDesktopTrash,
      nextCursor: from + past < all.length ? String(from + past) : undefined,
    };
  },
});

async function askFleet(lifeCycle: LifeCycle): Promise<FleetTrash & { readonly limited?: string }> {
  const none = { deleted: [], restoredIds: new Set<string>() };
  try {
    return (await lifeCycle.fleetTrash?.()) ?? none;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return { ...none, limited: error.message };
  }
}

function toRow(one: Trashed | DeletedElsewhere, restoredIds: ReadonlySet<string>): z.input<typeof item> {
  if (!("itemPath" in one)) return { itemPath: null, ...one };
  const { files, ...rest } = one;
  const isRestored = one.sessionId !== null && restoredIds.has(one.sessionId);
  return { ...rest, ...(files === null ? {} : { fileCount: files.length }), ...(isRestored ? { restored: true } : {}) };
}
