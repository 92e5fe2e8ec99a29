/** Events, which the server sends on its own (protocol, section 4). */

import * as z from "zod";
import type { eventNames } from "./event-names.ts";
import { damageResult, entry, sharedClient, typeStored, type Unchanged } from "./shapes.ts";

const file = z.string().nullable().describe("null for a session in memory");

/** The member of events that say who caused them. */
const client = sharedClient()
  .pick({ id: true, name: true, pid: true })
  .optional()
  .describe("with another host's doing: whose it is; missing where that is not known, as after the death of a holder");

export const eventDeclarations = {
  session_start: {
    summary: "A session became the current one.",
    payload: {
      reason: z.enum(["startup", "new", "resume", "fork"]),
      sessionFile: file,
      previousSessionFile: file.optional(),
    },
  },
  session_shutdown: {
    summary:
      "The current session is being left: for another one, or after shutdown or exit. No event reports another end of the server.",
    payload: { reason: z.enum(["quit", "new", "resume", "fork"]), targetSessionFile: file.optional() },
  },
  session_tree: {
    summary: "The leaf moved to another branch of the same session.",
    payload: {
      newLeafId: z.string().nullable(),
      oldLeafId: z.string().nullable(),
      summaryEntry: typeStored(entry).optional(),
      fromExtension: z.boolean().optional(),
      client,
    },
  },
  session_fork: {
    summary: "A new session was made from the path to an entry; session_start follows.",
    payload: {
      entryId: z.string().nullable().describe("null when an empty path was copied"),
      position: z.enum(["before", "at"]),
      sessionFile: file,
      previousSessionFile: file,
    },
  },
  session_compact: {
    summary: "A compaction was appended.",
    payload: { compactionEntry: typeStored(entry), fromExtension: z.boolean(), client },
  },
  session_append: {
    summary: "Entries were appended, by any command; a more specific event follows where there is one.",
    payload: {
      entryIds: z.array(z.string()),
      origin: z
        .enum(["self", "peer", "foreign"])
        .describe(
          "this host; another host that shares the session; a program that keeps no lock, or one before this, or, if this server has not joined the holder (--read-only), any other program",
        ),
      entries: typeStored(z.array(entry))
        .optional()
        .describe(
          "of foreign ones, if they can be read, and of those of a peer that were found after its holder had ended; get_entry reads all others, such as each that a peer has just written",
        ),
      durability: z
        .literal("local")
        .optional()
        .describe("with --fleet-away journal: they are on this machine alone, because the fleet's database is away"),
      client,
    },
  },
  session_info_changed: {
    summary: "The session's display name changed.",
    payload: { name: z.string().nullable(), client },
  },
  session_damage: {
    summary: "Damage was found while the session was open.",
    payload: { damage: z.array(damageResult()) },
  },
  session_durability_changed: {
    summary: "The database of the fleet is away, and new entries are on this machine alone; or it has all of them now.",
    payload: {
      durability: z
        .enum(["local", "primary", "replicated"])
        .describe("local: only here; primary: in the database, too; replicated: and on a second machine"),
    },
  },
  session_owner_changed: {
    summary: "Another process holds the shared session now; it gets all requests without an answer.",
    payload: {
      epoch: z.number().int().describe("grows with every holder"),
      client: z.string().describe("the name that the holder gives itself"),
      pid: z.number().int(),
      isSelf: z.boolean().describe("whether this server holds it now"),
    },
  },
  client_joined: {
    summary: "Another client shares the session from now on, or has named itself: `client.id` identifies it.",
    payload: { client: sharedClient() },
  },
  client_left: {
    summary: "A client shares the session no longer.",
    payload: {
      client: sharedClient(),
      reason: z
        .enum(["left", "died"])
        .describe("left: in order, or for another session; died: its server ended, and no word of it was heard"),
    },
  },
  events_lost: {
    summary: "Events were given up because the host did not read. get_entries and get_state show what there is now.",
    payload: { from: z.number().int().describe("the number of the first"), to: z.number().int() },
  },
} as const satisfies Readonly<Record<(typeof eventNames)[number], unknown>>;

export type EventName = keyof typeof eventDeclarations;

/** Every event carries these. `seq` counts the events that were sent, without a gap. */
export const eventBase = {
  sessionId: z.string(),
  leafId: z.string().nullable().describe("the leaf of this connection"),
  seq: z.number().int(),
  head: z.string().optional().describe("the head through which a connection did it; missing for the shared leaf"),
};

export type EventPayload<N extends EventName> = Unchanged<
  z.input<z.ZodObject<(typeof eventDeclarations)[N]["payload"]>>
>;

/** The reason why one session replaces another. */
export interface Replacement {
  readonly reason: "new" | "resume" | "fork";
  /** For a fork: the entry and the position that were asked for. */
  readonly fork?: { readonly entryId: string | null; readonly position: "before" | "at" };
}
