import * as z from "zod";
import { htmlPieces } from "../core/export/html.ts";
import type { Session } from "../core/session.ts";
import { command } from "./command.ts";

export default command({
  name: "export_html",
  summary: "Writes the current path as one plain page.",
  effect: "read",
  params: {
    outputPath: z
      .string()
      .min(1)
      .optional()
      .describe("by default a new file in the server's working directory; relative paths refer to that"),
    overwrite: z.boolean().optional().describe("whether a file that exists may be replaced"),
  },
  result: z.object({ path: z.string() }),
  failures: ["already_exists", "storage_full", "storage_failed"],
  example: { params: { outputPath: "session.html" }, result: { path: "/home/me/app/session.html" } },
  run(context, { outputPath, overwrite }) {
    const { session, workspace } = context;
    const { log } = session;
    const path = session.tree.path();
    const pieces = htmlPieces({
      title: session.name ?? `Session ${session.id}`,
      facts: [
        ["Session", session.id],
        ["Working directory", session.cwd],
        ["Begun", log.header.timestamp ?? ""],
      ],
      entries: entriesOf(session, path),
    });
    const written = workspace.stores.writeOutput(
      outputPath ?? `pi-session-${session.id}.html`,
      pieces,
      outputPath === undefined ? "rename" : overwrite ? "replace" : "refuse",
    );
    return { path: written };
  },
});

function* entriesOf(session: Session, path: Int32Array): Generator<Record<string, unknown>> {
  for (const position of path) yield session.entry(position);
}
