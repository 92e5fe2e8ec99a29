/**
 * The files of a task of Cline's or a relative's: beside the messages is what the model sees of them. `ui_messages.json`
 * and the list of all tasks have the range of messages that are left out, `context_history.json` has texts in others' place.
 */

import { basename, dirname, join } from "node:path";
import { isObject, type JsonObject } from "../../core/foreign/messages.ts";
import type { Translator } from "../../core/foreign/translator.ts";
import { bytesOf, parse } from "../../core/json/json.ts";
import { type Disk, type FileInfo, readWhole } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { type GatheredRecords, type GatheredSession, joined } from "./gathered.ts";
import { LARGEST_DOCUMENT, TASK_MESSAGES } from "./source.ts";

/** The list of all that is shown of a task. */
export const TASK_SCREEN = "ui_messages.json";
const CHANGES = "context_history.json";

/** Returns a task with what the model sees of it; undefined where `file` is no task's, or nothing is beside it. */
export function clineTask(disk: Disk, file: string, translator: Translator): GatheredSession | undefined {
  if (basename(file) !== TASK_MESSAGES) return undefined;
  const beside = [TASK_SCREEN, CHANGES].map((name) => join(dirname(file), name));
  if (!beside.some((path) => getInfo(disk, path)?.kind === "file")) return undefined;
  return {
    translator,
    info: () => infoOf(disk, file, [...beside, historyOf(file)]),
    read: () => recordsOf(disk, file, translator),
  };
}

function infoOf(disk: Disk, file: string, beside: readonly string[]): FileInfo | null {
  const own = getInfo(disk, file);
  if (own?.kind !== "file") return null;
  return joined([own, ...beside.map((path) => getInfo(disk, path)).filter((info) => info !== null)]);
}

/** The list of all tasks: <tasks>/<task>/ is beside <state>/. */
function historyOf(file: string): string {
  return join(dirname(dirname(dirname(file))), "state", "taskHistory.json");
}

function recordsOf(disk: Disk, file: string, { form }: Translator): GatheredRecords {
  if ((getInfo(disk, file)?.size ?? 0) > LARGEST_DOCUMENT)
    throw new RangeError("The file is larger than one JSON document can be read.");
  const document = readWhole(disk, file);
  const messages = form.kind === "document" ? [...form.records(document)] : [];
  const range = rangeOf(disk, file);
  const changes = listIn(disk, join(dirname(file), CHANGES));
  const facts = {
    ...(range && range[0] < messages.length
      ? { conversationHistoryDeletedRange: [range[0], Math.min(range[1], messages.length - 1)] }
      : {}),
    ...(changes.length === 0 ? {} : { contextHistory: changes }),
  };
  const first = Object.keys(facts).length === 0 ? [] : [{ bytes: bytesOf(JSON.stringify(facts)), number: 1 }];
  return { records: [...first, ...messages.map((bytes, n) => ({ bytes, number: n + 1 }))], warnings: [] };
}

/** Returns the messages that are left out: as the list of tasks says, which Cline goes by, or else what was shown last. */
function rangeOf(disk: Disk, file: string): readonly [number, number] | undefined {
  const id = basename(dirname(file));
  const task = listIn(disk, historyOf(file)).find((one) => isObject(one) && one.id === id) as JsonObject | undefined;
  if (task) return rangeIn(task);
  const shown = listIn(disk, join(dirname(file), TASK_SCREEN));
  return shown.map((one) => (isObject(one) ? rangeIn(one) : undefined)).findLast((range) => range !== undefined);
}

function rangeIn({ conversationHistoryDeletedRange: range }: JsonObject): readonly [number, number] | undefined {
  if (!Array.isArray(range)) return undefined;
  const [first, last] = range;
  return Number.isSafeInteger(first) && Number.isSafeInteger(last) && first > 0 && last >= first
    ? [first, last]
    : undefined;
}

/** Returns the list that a file has; an empty one where it has none that can be read. */
function listIn(disk: Disk, file: string): readonly unknown[] {
  try {
    const size = getInfo(disk, file)?.size ?? 0;
    const value = size === 0 || size > LARGEST_DOCUMENT ? [] : parse(readWhole(disk, file));
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}
