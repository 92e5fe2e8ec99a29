import * as z from "zod";
import { makeExportPage } from "../core/export/page.ts";
import { toFileNamePart } from "../core/format/entry.ts";
import { defineCommand } from "./shared/command.ts";
import { exportJsonl, makePageParts, pageParams, pageResult } from "./shared/jsonl.ts";
import { redactionParams, redactionResult, redactSession } from "./shared/redaction.ts";
import { findRelatives } from "./shared/relatives.ts";
import { optionalName } from "./shared/shapes.ts";

export default defineCommand({
  name: "export_html",
  summary:
    "Writes the session as one page that needs nothing else: the path to the leaf, and folded every other branch; with " +
    "script, which it brings, its tree and its search.",
  effect: "read",
  repeatable: false,
  params: {
    outputPath: optionalName.describe(
      "by default a new file in the server's working directory; relative paths refer to that",
    ),
    overwrite: z.boolean().optional().describe("whether an existing file may be replaced"),
    ...pageParams,
    ...redactionParams,
  },
  result: () => z.object({ path: z.string(), ...pageResult, ...redactionResult }),
  failures: ["path_outside_root", "already_exists", "unjudged", "storage_full", "storage_failed"],
  example: { params: { outputPath: "session.html" }, result: { path: "/home/me/app/session.html" } },
  async run(context, params) {
    const { session, workspace } = context;
    const { outputPath, overwrite } = params;
    const redacted = await redactSession(context, session, params, true);
    const named = outputPath ?? `pi-session-${toFileNamePart(session.id)}.html`;
    const taken = outputPath === undefined ? "rename" : overwrite ? "replace" : "refuse";
    // Pages are drawn by a file of its own, which no start needs.
    const { renderHtml: htmlPieces } = await import("../page/main.ts");
    const jsonl = () => exportJsonl(workspace.stores, session, redacted?.session, true);
    const family = await findRelatives(context, session, redacted !== undefined);
    const { pictureLimit: room, isPacked, report } = makePageParts(session, params.jsonl !== false);
    const page = makeExportPage(redacted?.session ?? session, "all", family, room);
    const pieces = htmlPieces(page, isPacked ? { jsonl } : {});
    return { path: await workspace.stores.writeOutput(named, pieces, taken), ...report(), ...redacted?.report() };
  },
});
