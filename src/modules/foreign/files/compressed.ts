/**
 * Codex's rollouts that were idle for seven days, which it compresses: `rollout-<time>-<thread>.jsonl.zst`. They are
 * read if Node has zstd (22.15 and newer); otherwise lists show the facts in their names.
 */

import { basename } from "node:path";
import { splitLines } from "../../../core/json/json.ts";
import type { Env } from "../../../core/ports/env.ts";
import { type Disk, readWhole } from "../../../storage/fs/disk.ts";
import { getInfo } from "../../../storage/fs/files.ts";
import { codex } from "../read/codex/codex.ts";
import { SurveyFacts } from "../read/survey.ts";
import { BYTES_SEEN } from "../read/translator.ts";
import { findTranslator } from "../read/translators.ts";
import { makeForeignHeader } from "./derived.ts";
import { type GatheredSession, numberRecords, stampTogether } from "./gathered.ts";
import type { Surveyed } from "./survey.ts";

type Decompress = (bytes: Uint8Array, options: { readonly maxOutputLength: number }) => Uint8Array;

const LARGEST = 1 << 28;
const NAME = /^rollout-(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-([0-9a-f-]{36})(?:_[0-9a-f-]+)?\.jsonl\.zst$/;

/** The function of Node that decompresses zstd; undefined before Node 22.15. */
const zstd = (process.getBuiltinModule("node:zlib") as { readonly zstdDecompressSync?: Decompress }).zstdDecompressSync;

export const CAN_DECOMPRESS = zstd !== undefined;

/** Returns whether a file has the name of a compressed rollout. */
export function isCompressed(file: string): boolean {
  return NAME.test(basename(file));
}

/** Returns a compressed rollout; undefined if it cannot be decompressed, or is no rollout. Throws errno errors. */
export function readCompressedRollout(disk: Disk, file: string, decompress = zstd): GatheredSession | undefined {
  const lines = (): Uint8Array => (decompress as Decompress)(readWhole(disk, file), { maxOutputLength: LARGEST });
  const info = () => stampTogether(disk, file);
  if (!decompress || !isCompressed(file) || !info()) return undefined;
  let begun: Uint8Array;
  try {
    begun = lines();
  } catch {
    return undefined;
  }
  const translator = findTranslator(begun.subarray(0, BYTES_SEEN), begun.length <= BYTES_SEEN);
  return (
    translator && { translator, info, read: () => ({ records: numberRecords([...splitLines(lines())]), warnings: [] }) }
  );
}

/** Returns the facts in the name of a compressed rollout; undefined for any other file. */
export function surveyByName(disk: Disk, env: Env, file: string): Surveyed | undefined {
  const [, day, hour, minute, second, nativeId] = NAME.exec(basename(file)) ?? [];
  if (nativeId === undefined || getInfo(disk, file)?.kind !== "file") return undefined;
  const facts = new SurveyFacts();
  facts.entries = 1;
  facts.name = zstd
    ? "(compressed with zstd, and damaged)"
    : "(compressed with zstd, which this version of Node cannot read)";
  const moment = new Date(`${day}T${hour}:${minute}:${second}`);
  const started = Number.isNaN(moment.getTime()) ? {} : { started: moment.toISOString() };
  const { header } = makeForeignHeader({ file, translator: codex, env }, { nativeId, ...started }, undefined);
  return { agent: codex.agent, header, facts, isDamaged: zstd !== undefined };
}
