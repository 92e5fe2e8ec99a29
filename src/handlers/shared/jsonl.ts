/** A session as JSONL, for exports: by itself, or within its page. */

import * as z from "zod";
import { redactedLines } from "../../core/export/redacted.ts";
import { bytesOf } from "../../core/json/json.ts";
import type { Stores } from "../../core/ports/stores.ts";
import type { Session } from "../../core/session/session.ts";

export const pageParams = {
  jsonl: z
    .boolean()
    .optional()
    .describe(
      "html: whether the page holds the session's JSONL for download, redacted if it is; true by default. It is packed, " +
        "about a sixth of its size",
    ),
};

/** Yields the bytes of a session as they are stored, or of the path to its leaf; `redacted`: that session in its place. */
export function jsonlOf(
  stores: Stores,
  session: Session,
  redacted: Session | undefined,
  all: boolean,
): Iterable<Uint8Array> {
  if (redacted) return redactedLines(redacted, all);
  return all ? stores.bytesOf(session.log) : pathLines(session);
}

/** Yields the header and the entries of the path, as they are stored. */
function* pathLines({ log, tree }: Session): Generator<Uint8Array> {
  yield log.headerLine;
  yield bytesOf("\n");
  yield* log.copy(tree.path());
}
