import * as z from "zod";
import { type ExportPage, pageOf } from "../core/export/page.ts";
import { roleRules, SEED_MARKER, trainingRecords } from "../core/export/training.ts";
import { BadParams, Failure } from "../core/failure.ts";
import { bytesOf, concat, jsonText } from "../core/json/json.ts";
import type { Session } from "../core/session/session.ts";
import { type CommandContext, command, type Report } from "./shared/command.ts";
import { jsonlOf, pageParams } from "./shared/jsonl.ts";
import { redactionParams, redactionResult, withoutSecrets } from "./shared/redaction.ts";
import { relativesOf } from "./shared/relatives.ts";
import { anySessionPath, optionalName } from "./shared/shapes.ts";

const FORMATS = ["jsonl", "html", "markdown", "training"] as const;

/** Bytes of exported content that a reply may have at most. */
const MAX_CONTENT = 256 << 20;

export default command({
  name: "export_session",
  summary:
    "Exports a session as its JSONL bytes, an HTML page that needs nothing else, Markdown, or training records; written to a " +
    "file, or returned where no file is named.",
  effect: "read",
  ofAny: true,
  repeatable: false,
  params: {
    sessionPath: anySessionPath,
    format: z.enum(FORMATS),
    outputPath: optionalName.describe("relative paths refer to the server's working directory"),
    overwrite: z.boolean().optional().describe("whether an existing file may be replaced"),
    branches: z
      .enum(["all", "path"])
      .optional()
      .describe("every branch, or the path to the leaf; all by default for jsonl and html, path for the others"),
    ...pageParams,
    ...redactionParams,
    rolePatterns: z
      .record(z.string().min(1).max(200), z.string().min(1))
      .optional()
      .describe(
        "training: regular expressions for the working directory and the roles they stand for, in place of the seven " +
          "of the extractor; without groups, with at most two repetitions",
      ),
    roleMarker: z
      .string()
      .optional()
      .describe(`training: the text before the role in the first user message; ${SEED_MARKER} by default`),
  },
  result: z.object({
    sessionId: z.string(),
    path: z.string().optional().describe("where it was written"),
    content: z.string().optional().describe("when no outputPath was given"),
    records: z.number().int().optional().describe("training: how many"),
    ...redactionResult,
  }),
  failures: [
    "not_a_session",
    "path_outside_root",
    "already_exists",
    "corrupt",
    "unjudged",
    "message_too_large",
    "storage_full",
    "storage_failed",
  ],
  example: {
    params: { format: "markdown", outputPath: "session.md" },
    result: { sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002", path: "/home/me/app/session.md" },
  },
  async run(context, params) {
    const { workspace } = context;
    const { sessionPath, format, outputPath, overwrite = false } = params;
    const all = (params.branches ?? (format === "jsonl" || format === "html" ? "all" : "path")) === "all";
    const rules = roleRules(params.rolePatterns, params.roleMarker);
    if ("reason" in rules) throw new BadParams([{ path: `rolePatterns.${rules.pattern}`, message: rules.reason }]);
    const stored = context.target ?? workspace.open({ sessionPath: sessionPath as string });
    try {
      const redacted = await withoutSecrets(context, stored, params, all);
      const session = redacted?.session ?? stored;
      const isPage = format === "html" || format === "markdown";
      const family = isPage ? await relativesOf(context, stored, redacted !== undefined) : undefined;
      let records: number | undefined;
      const recordLines = function* (): Generator<string> {
        for (const record of trainingRecords(session, rules, all)) {
          records = (records ?? 0) + 1;
          yield `${jsonText(record)}\n`;
        }
      };
      const jsonl = (): Iterable<Uint8Array> => jsonlOf(workspace.stores, stored, redacted?.session, all);
      const reads = { entries: 0 };
      const pieces =
        format === "training"
          ? recordLines()
          : format === "jsonl"
            ? jsonl()
            : await drawn(
                format,
                countingReads(pageOf(session, all, family), reads),
                params.jsonl === false ? undefined : jsonl,
              );
      const { id: sessionId } = session;
      if (outputPath === undefined)
        return { sessionId, content: contentOf(context, pieces), records, ...redacted?.report() };
      const attachmentsOf = format === "jsonl" && stored.file !== null ? stored.file : undefined;
      const taken = overwrite ? "replace" : "refuse";
      const isBytes = format === "jsonl" && !redacted && all;
      const told = withProgress(pieces, session, isBytes, context.progress, format === "html" ? reads : undefined);
      const path = await workspace.stores.writeOutput(outputPath, told, taken, attachmentsOf);
      return { sessionId, path, records, ...redacted?.report() };
    } finally {
      workspace.release(stored);
    }
  },
});

type ExportPieces = Iterable<string | Uint8Array>;

/** Counts the entries that are read of a page, of which a piece can have many. */
function countingReads(page: ExportPage, reads: { entries: number }): ExportPage {
  const branches = page.branches.map((branch) => ({
    ...branch,
    *entries() {
      for (const entry of branch.entries()) {
        reads.entries++;
        yield entry;
      }
    },
  }));
  return { ...page, branches };
}

/** Yields the pieces, and reports how much of the session they are: its bytes, its entries, or a piece for each of them. */
function* withProgress(
  pieces: ExportPieces,
  { log }: Session,
  isBytes: boolean,
  progress: Report | undefined,
  reads?: { readonly entries: number },
): Generator<string | Uint8Array> {
  const { count } = log.nodes;
  let total = isBytes ? log.headerLine.length + 1 : count;
  // Each line ends with a line feed.
  for (let position = 0; isBytes && progress && position < count; position++) total += log.length(position) + 1;
  let done = 0;
  let reported = 0;
  for (const piece of pieces) {
    yield piece;
    done = reads?.entries ?? done + (isBytes ? piece.length : 1);
    if (done - reported < total / 100) continue;
    reported = done;
    progress?.(Math.min(done, total), total);
  }
}

async function drawn(
  format: "html" | "markdown",
  page: ExportPage,
  jsonl: (() => Iterable<Uint8Array>) | undefined,
): Promise<Iterable<string>> {
  // Pages are drawn by a file of its own, which no start needs.
  const { htmlPieces, markdownPieces } = await import("../page/main.ts");
  return format === "html" ? htmlPieces(page, { jsonl }) : markdownPieces(page);
}

/** Returns the pieces as one text. Throws message_too_large, and corrupt when the bytes are not UTF-8. */
function contentOf({ host }: CommandContext, pieces: ExportPieces): string {
  const most = Math.min(MAX_CONTENT, host.maxReplyBytes ?? MAX_CONTENT);
  const parts: Uint8Array[] = [];
  let size = 0;
  for (const piece of pieces) {
    const bytes = typeof piece === "string" ? bytesOf(piece) : Uint8Array.from(piece);
    size += bytes.length;
    if (size > most)
      throw new Failure("message_too_large", "The export is larger than a reply may be. Name a file as outputPath.");
    parts.push(bytes);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(concat(parts));
  } catch {
    throw new Failure("corrupt", "The session's bytes are not text. Name an outputPath to get them as they are.");
  }
}
