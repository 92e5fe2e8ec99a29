import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { exampleId } from "./shared/shapes.ts";

export const exampleKept = `/home/me/.local/state/pi-session-server/quarantine/${exampleId}.refused.bin`;

export default defineCommand({
  name: "list_kept",
  summary:
    "Lists entries that a fleet refused, because another machine had taken the session or written to it, or that gave " +
    "way to those of other machines. recover_kept makes a branch of them. Changes nothing.",
  effect: "server",
  repeatable: true,
  result: () =>
    z.object({
      kept: z.array(
        z.object({
          keptAt: z.string(),
          sessionId: z.string(),
          entryCount: z.number().int(),
          damagedLines: z.number().int().describe("lines that are no entries any more; recover_kept leaves them out"),
          sizeBytes: z.number().int(),
          since: z.string().describe("ISO 8601"),
          text: z.string().nullable().describe("the beginning of what the first message says"),
        }),
      ),
    }),
  failures: ["storage_failed"],
  example: {
    params: {},
    result: {
      kept: [
        {
          ...{ keptAt: exampleKept, sessionId: exampleId, entryCount: 1, damagedLines: 0, sizeBytes: 271 },
          ...{ since: "2026-01-24T16:22:31.120Z", text: "Run the tests." },
        },
      ],
    },
  },
  run({ workspace }) {
    const kept = workspace.stores.kept.list();
    return { kept: kept.map((one) => ({ ...one, since: new Date(one.since).toISOString() })) };
  },
});
