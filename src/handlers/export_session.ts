import * as z from "zod";
import { getRecentPath } from "../core/export/branches.ts";
import { type ExportPage, makeExportPage, type PageExtent } from "../core/export/page.ts";
import { RESUMING, type ResumableSession } from "../core/export/resumable.ts";
import { parseRoleRules, readTrainingRecords, SEED_MARKER } from "../core/export/training.ts";
import { BadParams, Failure } from "../core/failure.ts";
import { replaceHalves } from "../core/json/halves.ts";
import { concat, toBytes, toJsonText } from "../core/json/json.ts";
import type { Session } from "../core/session/session.ts";
import { lookAt } from "./shared/any-session.ts";
import { type CommandContext, defineCommand, type Report } from "./shared/command.ts";
import { countLineBytes, exportJsonl, makePageParts, pageParams, pageResult } from "./shared/jsonl.ts";
import { redactionParams, redactionResult, redactSession } from "./shared/redaction.ts";
import { findRelatives } from "./shared/relatives.ts";
import { anySessionPath, fidelity, optionalName } from "./shared/shapes.ts";

const FORMATS = ["jsonl", "html", "markdown", "training", ...RESUMING] as const;
/** Formats that have all branches by default. */
const WHOLE: readonly string[] = ["jsonl", "html", "claude"] satisfies (typeof FORMATS)[number][];

/** Bytes of exported content that a reply may have at most. */
const MAX_CONTENT = 256 << 20;

export default defineCommand({
  name: "export_session",
  summary:
    "Exports a session as its JSONL bytes, an HTML page that needs nothing else, Markdown, training records, or a file that " +
    "Claude Code or Codex resumes; written to a file, or returned where no file is named.",
  effect: "read",
  ofAny: true,
  repeatable: false,
  params: {
    sessionPath: anySessionPath,
    format: z.enum(FORMATS),
    outputPath: optionalName.describe("relative paths refer to the server's working directory"),
    overwrite: z.boolean().optional().describe("whether an existing file may be replaced"),
    branches: z
      .enum(["all", "path", "recent"])
      .optional()
      .describe(
        "every branch, the path to the leaf, or (html and markdown) that path from what the last compaction kept; all by " +
          "default for jsonl, html and claude, path for the others. codex has only the path",
      ),
    leafId: z.string().optional().describe("claude, codex: the entry to resume from; the current leaf by default"),
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
  result: () =>
    z.object({
      sessionId: z.string(),
      path: z.string().optional().describe("where it was written"),
      content: z.string().optional().describe("when no outputPath was given"),
      records: z.number().int().optional().describe("training: how many"),
      ...pageResult,
      ...redactionResult,
      resume: z
        .object({
          sessionId: z.string().describe("of the session in the file"),
          path: z
            .string()
            .optional()
            .describe("where the agent looks for the file; missing for a session without a working directory"),
          command: z.string().describe("of a shell, which resumes it once the file is there"),
        })
        .optional()
        .describe("claude, codex: how the file is resumed. Nothing is put there unless outputPath says so"),
      fidelity: fidelity()
        .optional()
        .describe("claude, codex: what became of the entries; record is an entry's number, from 1"),
    }),
  failures: [
    "not_a_session",
    "entry_not_found",
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
    const { workspace, server } = context;
    const { sessionPath, format, outputPath, overwrite = false, branches, leafId } = params;
    const extent = branches ?? (WHOLE.includes(format) ? "all" : "path");
    const all = extent === "all";
    const isPage = format === "html" || format === "markdown";
    if (extent === "recent" && !isPage)
      throw new BadParams([{ path: "branches", message: "only html and markdown can begin at the last compaction" }]);
    const agent = RESUMING.find((name) => name === format);
    if (format === "codex" && all)
      throw new BadParams([{ path: "branches", message: "a file of Codex's has one path" }]);
    if (!agent && leafId !== undefined)
      throw new BadParams([{ path: "leafId", message: "only claude and codex take one; branch moves the leaf" }]);
    if (agent && !server.makeResumable)
      throw new BadParams([{ path: "format", message: "this build writes no files of other agents" }]);
    const rules = parseRoleRules(params.rolePatterns, params.roleMarker);
    if ("reason" in rules) throw new BadParams([{ path: `rolePatterns.${rules.pattern}`, message: rules.reason }]);
    return lookAt(context, sessionPath, async (stored) => {
      if (
        outputPath === undefined &&
        (format === "html" || (format === "jsonl" && !params.redact && !params.redactEmails))
      )
        requireReadable(stored, extent, isPage);
      const leaf = leafId === undefined ? stored.tree.leaf : stored.position(leafId);
      const redacted = await redactSession(context, stored, params, all || leafId !== undefined);
      const session = redacted?.session ?? stored;
      const family = isPage ? await findRelatives(context, stored, redacted !== undefined) : undefined;
      const file = agent && server.makeResumable?.(agent, session, { leaf, all });
      let records: number | undefined;
      const recordLines = function* (): Generator<string> {
        for (const record of readTrainingRecords(session, rules, all)) {
          records = (records ?? 0) + 1;
          yield `${replaceHalves(toJsonText(record))}\n`;
        }
      };
      const jsonl = (): Iterable<Uint8Array> => exportJsonl(workspace.stores, stored, redacted?.session, all);
      const reads = { entries: 0 };
      const parts =
        format === "html" ? makePageParts(stored, params.jsonl !== false && extent !== "recent") : undefined;
      const pieces = file
        ? file.lines()
        : format === "training"
          ? recordLines()
          : isPage
            ? await drawn(
                context,
                format,
                countingReads(makeExportPage(session, extent, family, parts?.pictureLimit), reads),
                parts?.isPacked ? jsonl : undefined,
              )
            : jsonl();
      const { id: sessionId } = session;
      const outcome = () => ({
        records,
        ...parts?.report(),
        ...redacted?.report(),
        ...(file && resumption(file)),
      });
      if (outputPath === undefined) return { sessionId, content: await contentOf(context, pieces), ...outcome() };
      const attachmentsOf = format === "jsonl" && stored.file !== null ? stored.file : undefined;
      const taken = overwrite ? "replace" : "refuse";
      const isBytes = format === "jsonl" && !redacted && all;
      const reported = withProgress(pieces, session, isBytes, context.progress, format === "html" ? reads : undefined);
      const path = await workspace.stores.writeOutput(outputPath, reported, taken, attachmentsOf);
      return { sessionId, path, ...outcome() };
    });
  },
});

/** Returns how a file is resumed that another agent can have, and what became of the entries, once it is written. */
function resumption({ sessionId, path, command, report }: ResumableSession) {
  const resume = { sessionId, ...(path === undefined ? {} : { path }), command };
  return { resume, fidelity: report() };
}

type ExportPieces = Iterable<string | Uint8Array>;

/** Counts the entries that are read for a page; one piece can have many. */
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
  { workspace }: CommandContext,
  format: "html" | "markdown",
  page: ExportPage,
  jsonl: (() => Iterable<Uint8Array>) | undefined,
): Promise<Iterable<string>> {
  // Pages are drawn by a file of its own, which no start needs.
  const { renderHtml: htmlPieces, writeMarkdown: markdownPieces } = await import("../page/main.ts");
  await workspace.stores.pause();
  return format === "html" ? htmlPieces(page, { jsonl }) : markdownPieces(page);
}

/** Throws message_too_large where entries are known to be larger than a reply, before anything of them is read. */
function requireReadable(session: Session, extent: PageExtent, isPage: boolean): void {
  const shown = extent === "all" ? undefined : extent === "path" ? session.tree.path() : getRecentPath(session);
  const size = countLineBytes(session, shown);
  if (size <= MAX_CONTENT) return;
  const less =
    isPage && extent !== "recent" ? ", or ask for the branches `recent`, which begin at the last compaction" : "";
  const sentence = `These entries have ${size} bytes, and a reply has ${MAX_CONTENT} at most. Name a file as outputPath${less}.`;
  throw new Failure("message_too_large", sentence, { size, limit: MAX_CONTENT });
}

/** Bytes that are made without a pause. */
const STEP = 1 << 19;

/** Returns the pieces as one text, with pauses for other requests. Throws message_too_large, and corrupt when the bytes are not UTF-8. */
async function contentOf({ host, workspace }: CommandContext, pieces: ExportPieces): Promise<string> {
  const most = Math.min(MAX_CONTENT, host.maxReplyBytes ?? MAX_CONTENT);
  const parts: Uint8Array[] = [];
  let size = 0;
  let paused = 0;
  for (const piece of pieces) {
    if (size - paused >= STEP || piece.length === 0) {
      paused = size;
      await workspace.stores.pause();
    }
    const bytes = typeof piece === "string" ? toBytes(piece) : Uint8Array.from(piece);
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
