/** Shared parts of the commands about leftovers. */

import * as z from "zod";
import { LEFTOVER_KINDS, type Leftover, type WantedLeftovers } from "../../core/ports/leftovers.ts";
import { readMoment } from "./params.ts";
import { optionalName, typeStored } from "./shapes.ts";

const before = z.string().optional().describe("only leftovers from before this time, ISO 8601");

export const leftoverParams = {
  paths: z
    .array(z.string().min(1))
    .min(1)
    .optional()
    .describe("only these, each by its path; by default those of all sessions that are listed or archived"),
  sessionPath: optionalName.describe("only those of this session"),
  kinds: z.array(z.enum(LEFTOVER_KINDS)).optional(),
  before,
};

export const leftover = z.object({
  path: z.string(),
  kind: z
    .enum(LEFTOVER_KINDS)
    .describe(
      "backup: from a repair, a relocation or a newer format; migrated: the file that a container has taken the place of; " +
        "rolled_back: such a container; temporary: a file that a process was writing when it ended; announcement: of a killed server, for others to join it",
    ),
  sizeBytes: z.number().int(),
  since: z.string().describe("when it was left, as far as the disk knows, ISO 8601"),
  sessionPath: z.string().nullable().describe("of the session that it belongs to; null when that is not there"),
  sessionId: z.string().nullable(),
  name: typeStored(z.string().nullable()).describe("of the session, or the beginning of its first message"),
  keptBecause: z.string().nullable().describe("why it stays; null when it may go"),
  isNeeded: z.boolean().describe("whether it stays even when that is forced"),
  consequence: z.string().nullable().describe("the loss, or the action that becomes impossible, when it is gone"),
});

/** Returns what params ask for. Throws BadParams for a text that is no time. */
export function toWanted({ before, ...rest }: z.output<z.ZodObject<typeof leftoverParams>>): WantedLeftovers {
  return { ...rest, before: readMoment("before", before) };
}

export function toWire({ since, ...rest }: Leftover): z.input<typeof leftover> {
  return { ...rest, since: new Date(since).toISOString() };
}

export function sumBytes(things: readonly { readonly sizeBytes: number }[]): number {
  return things.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

export const exampleLeftover = {
  path: "/home/me/sessions/current.jsonl.v2.bak",
  kind: "backup" as const,
  sizeBytes: 812,
  since: "2026-01-24T16:22:26.831Z",
  sessionPath: "/home/me/sessions/current.jsonl",
  sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
  name: null,
  keptBecause: null,
  isNeeded: false,
  consequence: null,
};
