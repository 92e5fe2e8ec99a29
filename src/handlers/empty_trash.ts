import * as z from "zod";
import type { Trashed } from "../core/ports/lifecycle.ts";
import { defineCommand } from "./shared/command.ts";
import { sumBytes } from "./shared/leftovers.ts";
import { readMoment } from "./shared/params.ts";
import { typeStored } from "./shared/shapes.ts";

const item = z.object({
  itemPath: z.string(),
  sessionPath: z.string().describe("where it was"),
  sessionId: z.string().nullable().describe("null for leftovers"),
  name: typeStored(z.string().nullable()),
  deletedAt: z.string().describe("ISO 8601"),
  sizeBytes: z.number().int(),
});

export default defineCommand({
  name: "empty_trash",
  summary:
    "Removes items of the server's own trash for good: nothing brings them back, and the operations that put them there " +
    "cannot be undone any more. With dryRun, it only lists them.",
  effect: "server",
  params: {
    before: z.string().optional().describe("only items deleted before this time, ISO 8601; all by default"),
    dryRun: z.boolean().optional(),
  },
  result: () =>
    z.object({
      operationId: z.string().nullable().describe("of the record; null when nothing was removed"),
      items: z.array(item).describe("that were removed, or would be"),
      totalBytes: z.number().int(),
      kept: z.array(z.object({ itemPath: z.string(), reason: z.string() })),
    }),
  failures: ["read_only", "storage_failed"],
  example: {
    params: { before: "2026-01-24T16:22:26.831Z", dryRun: true },
    result: { operationId: null, items: [], totalBytes: 0, kept: [] },
  },
  async run({ workspace, progress }, { before, dryRun = false }) {
    const { lifeCycle } = workspace.stores;
    const time = readMoment("before", before);
    const isMeant = ({ deletedAt }: Trashed): boolean => time === undefined || Date.parse(deletedAt) < time;
    if (dryRun) {
      const items = lifeCycle.trash().filter(isMeant);
      return { operationId: null, items: items.map(toWire), totalBytes: sumBytes(items), kept: [] };
    }
    const { operationId, removed, kept } = await lifeCycle.emptyTrash(isMeant, progress);
    return {
      operationId,
      items: removed.map(toWire),
      totalBytes: sumBytes(removed),
      kept: kept.map(({ item, reason }) => ({ itemPath: item.itemPath, reason })),
    };
  },
});

function toWire({ itemPath, sessionPath, sessionId, deletedAt, sizeBytes, name }: Trashed): z.input<typeof item> {
  return { itemPath, sessionPath, sessionId, name, deletedAt, sizeBytes };
}
