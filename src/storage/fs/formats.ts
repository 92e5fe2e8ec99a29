/** Names the format of a file that is not one of our sessions, so that it does not count as a damaged one. */

import { hasDamagedType } from "../../core/format/entry.ts";
import { tryParseText } from "../../core/json/json.ts";
import { KNOWN_TYPES } from "../../core/tree/nodes.ts";
import type { Disk } from "./disk.ts";
import { readBeginning, readIfPresent } from "./files.ts";
import { beginsDatabase } from "./header.ts";

export interface StrangeFormat {
  readonly name: string;
  /** A clause after the name of the file, and one about the next thing to do. */
  readonly is: string;
  readonly next: string;
}

const ZSTD = "28b52ffd";
/** First bytes of compressed files, in hexadecimal digits. */
const COMPRESSED: Readonly<Record<string, string>> = {
  [ZSTD]: "zstd",
  "1f8b": "gzip",
  "425a68": "bzip2",
  fd377a58: "xz",
  "504b0304": "zip",
};

/** Bytes to examine. A document may be longer. */
const SEEN = 1 << 16;

/** Returns the format of a file by its first bytes; undefined for a damaged session and for bytes that are not text. */
export function findStrangeFormat(disk: Disk, file: string): StrangeFormat | undefined {
  const bytes = readIfPresent(() => readBeginning(disk, file, SEEN));
  if (!bytes) return undefined;
  const isWhole = bytes.length < SEEN;
  const begun = Buffer.from(bytes.subarray(0, 4)).toString("hex");
  const [, name] = Object.entries(COMPRESSED).find(([magic]) => begun.startsWith(magic)) ?? [];
  if (name !== undefined)
    return {
      name,
      is: `is compressed with ${name}`,
      next:
        name === "zstd"
          ? "Codex compresses sessions that were idle for a week. Node 22.15 or newer reads those; or decompress a copy and open that"
          : "Decompress a copy of it and open that",
    };
  const next = "A newer version of this program may read it";
  if (beginsDatabase(bytes))
    return { name: "sqlite", is: "is an SQLite database, of no agent that is known here", next };
  const text = new TextDecoder().decode(bytes);
  const value = isWhole ? tryParseText(text) : undefined;
  const isEmpty = value === null || (typeof value === "object" && Object.keys(value as object).length === 0);
  if (value !== undefined && isEmpty)
    return { name: "empty", is: "is a JSON document with nothing in it", next: "Its agent said nothing in it yet" };
  const isLongLine = !isWhole && !text.includes("\n") && /^\s*\{"/.test(text) && !/^\s*\{"type":/.test(text);
  if (value !== undefined || isLongLine || /^\s*(?:\[\s*\{|\{\s*\n\s*")/.test(text))
    return isOfOurs(value)
      ? undefined
      : { name: "json", is: "is a JSON document of no agent that is known here", next };
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (!isWhole) lines.pop();
  const values = lines.map(tryParseText);
  const records = values.filter((one) => typeof one === "object" && one !== null);
  // Damage in another agent's file does not make it our session.
  const areRecords = records.length * 2 > values.length;
  const [first] = records;
  const isDamaged = hasDamagedType(first) && records.slice(1).some(isOfOurs);
  const isOther = typeof (first as { type?: unknown })?.type === "string" && !isOfOurs(first) && !isDamaged;
  if (!areRecords || records.some(isHeader) || (!isOther && records.some(isOfOurs))) return undefined;
  return { name: "jsonl", is: "has lines of JSON, of no agent that is known here", next };
}

function isHeader(record: unknown): boolean {
  return (record as { type?: unknown } | null)?.type === "session";
}

/** Returns whether a record may be one of a session of ours that lost something. */
function isOfOurs(record: unknown): boolean {
  const { type } = (record ?? {}) as { type?: unknown };
  return isHeader(record) || KNOWN_TYPES.includes(type as never);
}
