import * as z from "zod";
import { pageOf } from "../core/export/page.ts";
import { command } from "./shared/command.ts";
import { redactionParams, redactionResult, withoutSecrets } from "./shared/redaction.ts";
import { optionalName } from "./shared/shapes.ts";

export default command({
  name: "export_html",
  summary: "Writes the session as one page without scripts: the path to the leaf, and folded every other branch.",
  effect: "read",
  repeatable: false,
  params: {
    outputPath: optionalName.describe(
      "by default a new file in the server's working directory; relative paths refer to that",
    ),
    overwrite: z.boolean().optional().describe("whether an existing file may be replaced"),
    ...redactionParams,
  },
  result: z.object({ path: z.string(), ...redactionResult }),
  failures: ["already_exists", "unjudged", "storage_full", "storage_failed"],
  example: { params: { outputPath: "session.html" }, result: { path: "/home/me/app/session.html" } },
  async run(context, params) {
    const { session, workspace } = context;
    const { outputPath, overwrite } = params;
    const redacted = await withoutSecrets(context, session, params, true);
    const named = outputPath ?? `pi-session-${session.id}.html`;
    const taken = outputPath === undefined ? "rename" : overwrite ? "replace" : "refuse";
    // Pages are drawn by a file of its own, which no start needs.
    const { htmlPieces } = await import("../page/main.ts");
    const pieces = htmlPieces(pageOf(redacted?.session ?? session, true));
    return { path: await workspace.stores.writeOutput(named, pieces, taken), ...redacted?.report() };
  },
});
