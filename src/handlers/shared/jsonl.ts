/** A session as JSONL, for exports: by itself, or within its page. */

import * as z from "zod";
import { PictureLimit } from "../../core/export/pictures.ts";
import { redactLines } from "../../core/export/redacted.ts";
import { toBytes } from "../../core/json/json.ts";
import type { Stores } from "../../core/ports/stores.ts";
import type { Session } from "../../core/session/session.ts";

export const pageParams = {
  jsonl: z
    .boolean()
    .optional()
    .describe(
      "html: whether the page holds the session's JSONL for download, redacted if it is; true by default. It is packed, " +
        "about a sixth of its size; one over 100 MB is left out",
    ),
};

/** Bytes of a session's lines that a page holds for download at most. */
const MOST_PACKED = 100 << 20;

export const pageResult = {
  leftOut: z
    .object({
      pictures: z.number().int().describe("how many of the last ones"),
      bytes: z.number().int().describe("of these pictures"),
      jsonl: z.boolean().describe("whether the session's JSONL is left out"),
    })
    .optional()
    .describe(
      "html: pictures that are not on the page, because they are beyond 100 MB of data and browsers open no page so large",
    ),
};

/** Returns the bytes of some lines, or of all, without reading them. */
export function countLineBytes({ log }: Session, positions?: Iterable<number>): number {
  let bytes = 0;
  for (const position of positions ?? Array(log.nodes.count).keys()) bytes += log.length(position) + 1;
  return bytes;
}

/** Returns what of a session goes on a page, as far as browsers open it, and the report about what does not. */
export function makePageParts(session: Session, jsonl: boolean) {
  const pictureLimit = new PictureLimit();
  const isPacked = jsonl && countLineBytes(session) <= MOST_PACKED;
  const report = () => {
    const { pictures, bytes } = pictureLimit;
    const leftOut = { pictures, bytes, jsonl: jsonl && !isPacked };
    return pictures > 0 || leftOut.jsonl ? { leftOut } : {};
  };
  return { pictureLimit, isPacked, report };
}

/** Yields the bytes of a session as they are stored, or of the path to its leaf; `redacted`: that session in its place. */
export function exportJsonl(
  stores: Stores,
  session: Session,
  redacted: Session | undefined,
  all: boolean,
): Iterable<Uint8Array> {
  if (redacted) return redactLines(redacted, all);
  return all ? stores.bytesOf(session.log) : pathLines(session);
}

/** Yields the header and the entries of the path, as they are stored. */
function* pathLines({ log, tree }: Session): Generator<Uint8Array> {
  yield log.headerLine;
  yield toBytes("\n");
  yield* log.copy(tree.path());
}
