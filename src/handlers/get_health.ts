import * as z from "zod";
import { Failure } from "../core/failure.ts";
import type { FleetAdmin } from "../core/ports/fleet-admin.ts";
import { FIX_KINDS, HIDDEN_REASONS } from "../core/ports/health.ts";
import { LEFTOVER_KINDS } from "../core/ports/leftovers.ts";
import { findBeginningAmong } from "../core/search/listing.ts";
import { defineCommand } from "./shared/command.ts";
import { typeStored, unreadFile } from "./shared/shapes.ts";

const agents = z.array(z.enum(["pi", "pi_agent_rust"]));

const known = {
  sessionPath: z.string(),
  sessionId: z.string().nullable().describe("null for a session that no id finds, only its path"),
  shortId: z.string().nullable().describe("as list_sessions has it"),
  name: typeStored(z.string().nullable()).describe("its name, or the beginning of its first message"),
  archived: z.boolean(),
};

export const fix = z.object({
  kind: z.enum(FIX_KINDS),
  path: z.string(),
  text: z.string().describe("one sentence: the action"),
});

const holder = z.object({ client: z.string(), pid: z.number().int(), since: z.string().describe("ISO 8601") });

export default defineCommand({
  name: "get_health",
  summary:
    "Reports on this machine and its sessions: folders, counts, sessions that agents do not show, damage, " +
    "locks, leftovers, permissions, the catalog. Opens every session and reads no messages; verify_sessions " +
    "does. Changes nothing.",
  effect: "server",
  repeatable: true,
  result: () =>
    z.object({
      ok: z.boolean().describe("no damaged session, nothing that was begun and not finished, and no damaged catalog"),
      server: z.object({ name: z.string(), version: z.string() }),
      node: z.object({ version: z.string(), required: z.string(), supported: z.boolean() }),
      roots: z.array(
        z.object({
          path: z.string(),
          agents: agents.describe("programs that look for sessions there"),
          exists: z.boolean(),
          inUse: z.boolean().describe("whether lists come from there"),
          hasRustIndex: z.boolean().describe("whether the index of pi_agent_rust is there"),
        }),
      ),
      stateFolder: z.string(),
      counts: z.object({
        sessions: z.number().int().describe("neither archived nor in the trash"),
        archived: z.number().int(),
        trashed: z.number().int().describe("items of the server's own trash"),
        containers: z.number().int().describe("sessions in Session Store V2"),
        forks: z.number().int(),
        databases: z.number().int().describe("databases of pi_agent_rust, which migrate_session takes in"),
      }),
      hidden: z
        .array(
          z.object({
            ...known,
            reason: z.enum(HIDDEN_REASONS),
            text: z.string(),
            cwd: z.string().optional().describe("of cwd_missing and other_folder: the directory"),
            agents,
          }),
        )
        .describe("sessions that agents do not show, or do not continue where they were"),
      damaged: z.array(
        z.object({
          ...known,
          reasons: z.array(z.string()).describe("the first few"),
          damageCount: z.number().int(),
          remedy: z
            .enum(["repair", "finish", "none"])
            .describe(
              "repair_session; or migrate_session and rollback_migration, which finish an interrupted migration",
            ),
        }),
      ),
      sameIds: z
        .array(
          z.object({
            sessionId: z.string(),
            sessionPaths: z.array(z.string()),
          }),
        )
        .describe("files with one session id, such as copies by hand: a path names each, and the id none"),
      notRead: z
        .array(unreadFile())
        .describe(
          "files in the places of other agents that no session can be read from, and containers that no list shows",
        ),
      locks: z.array(
        z.object({
          sessionPath: z.string().nullable(),
          sessionId: z.string().nullable(),
          shortId: z.string().nullable(),
          holder,
          isStale: z.boolean().describe("no process holds it: the former one ended without releasing it"),
          isOwn: z.boolean().describe("this server holds it"),
        }),
      ),
      leftovers: z
        .array(
          z.object({
            kind: z.enum(LEFTOVER_KINDS),
            count: z.number().int(),
            sizeBytes: z.number().int(),
            oldest: z.string().describe("ISO 8601"),
          }),
        )
        .describe("list_leftovers has them one by one"),
      exposed: z
        .array(
          z.object({
            path: z.string(),
            mode: z.string().describe("octal digits"),
            isOwn: z.boolean().describe("whether it is the state folder"),
            fileCount: z.number().int().describe("files in it that others can read"),
          }),
        )
        .describe("folders that other users of the machine can look into, or with files that they can read"),
      catalog: z.object({
        state: z
          .enum(["sound", "damaged", "missing", "unused", "busy"])
          .describe("missing: the next list makes it; unused: there is no SQLite; busy: it could not be looked at"),
        path: z.string().nullable(),
        sizeBytes: z.number().int(),
        reason: z.string().nullable(),
      }),
      fleet: z
        .object({
          away: z.string().nullable().describe("why the database does not answer; null where it does"),
          owed: z.number().int().describe("sessions with entries that only this machine has; fleet push uploads them"),
          lacking: z
            .number()
            .int()
            .nullable()
            .describe(
              "sessions whose acknowledged entries the database has lost; fleet restore uploads them again. Null if it could not be asked",
            ),
          unrecorded: z
            .number()
            .int()
            .describe(
              "sessions whose last acknowledgement this server could not record, because the disk is full: until it can, " +
                "nothing shows that a restored backup lacks it",
            ),
          kept: z.number().int().describe("files of entries that the fleet refused; list_kept has them"),
          commits: z.number().int().describe("commits that the database has taken since this server began"),
          unknown: z.number().int().describe("commits without an answer"),
          refusals: z.number().int().describe("commits that the database did not take"),
          takings: z.number().int().describe("times that this server became the writer of a session"),
          waits: z.number().int().describe("times that a request waited for a database that was away"),
        })
        .nullable()
        .describe("null for a server without a fleet"),
      space: z
        .object({ path: z.string(), freeBytes: z.number(), totalBytes: z.number() })
        .optional()
        .describe("missing if the system does not say"),
      fixes: z.array(fix).describe("what fix_health would do"),
    }),
  failures: ["storage_failed"],
  example: {
    params: {},
    result: {
      ok: true,
      server: { name: "pi-session-server", version: "0.1.0" },
      node: { version: "24.4.0", required: "20.19", supported: true },
      roots: [
        {
          path: "/home/me/.pi/agent/sessions",
          agents: ["pi", "pi_agent_rust"],
          exists: true,
          inUse: true,
          hasRustIndex: false,
        },
      ],
      stateFolder: "/home/me/.local/state/pi-session-server",
      counts: { sessions: 1, archived: 0, trashed: 0, containers: 0, forks: 0, databases: 0 },
      hidden: [],
      damaged: [],
      sameIds: [],
      notRead: [],
      locks: [],
      leftovers: [],
      exposed: [],
      catalog: {
        state: "sound",
        path: "/home/me/.local/state/pi-session-server/catalog/0f1e2d3c4b5a6978.sqlite",
        sizeBytes: 65536,
        reason: null,
      },
      fleet: null,
      space: { path: "/home/me/.pi/agent/sessions", freeBytes: 51539607552, totalBytes: 255013683200 },
      fixes: [],
    },
  },
  async run({ workspace, server, progress }) {
    const health = await workspace.stores.health.examine(progress);
    const { leftovers, damaged, hidden, locks, catalog, notRead } = health;
    const { ids } = workspace.stores.offered("", 0, "both");
    const { fleet, kept } = workspace.stores;
    const withShortId = <T extends { readonly sessionId: string | null }>(session: T) => ({
      ...session,
      shortId: session.sessionId === null ? null : findBeginningAmong(session.sessionId, ids),
    });
    return {
      ...health,
      ok: damaged.length === 0 && catalog.state !== "damaged" && !notRead.some(({ isDamaged }) => isDamaged),
      server: { name: server.name, version: server.version },
      fleet: fleet
        ? {
            away: await fleet.whyAway(),
            owed: fleet.listPending().filter(({ from }) => from !== null).length,
            lacking: await countLosses(fleet),
            unrecorded: fleet.unrecorded,
            kept: kept.list().length,
            ...fleet.tally,
          }
        : null,
      hidden: hidden.map(withShortId),
      damaged: damaged.map(withShortId),
      locks: locks.map(withShortId),
      leftovers: leftovers.map((group) => ({ ...group, oldest: new Date(group.oldest).toISOString() })),
    };
  },
});

/** Returns null if that cannot be asked. */
async function countLosses(fleet: FleetAdmin): Promise<number | null> {
  try {
    return (await fleet.listLosses()).length;
  } catch (error) {
    if (error instanceof Failure) return null;
    throw error;
  }
}
