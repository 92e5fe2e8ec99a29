/**
 * The files of a task of Cline or a relative, which give the model's view of the messages. `ui_messages.json` and the
 * list of all tasks have the range of the left-out messages, `context_history.json` has the replaced texts.
 */

import { basename, dirname, join } from "node:path";
import { isObject, type JsonObject } from "../../../core/foreign/messages.ts";
import { parse, toBytes } from "../../../core/json/json.ts";
import { type Disk, readWhole } from "../../../storage/fs/disk.ts";
import { getInfo } from "../../../storage/fs/files.ts";
import type { Translator } from "../read/translator.ts";
import { type GatheredRecords, type GatheredSession, stampTogether } from "./gathered.ts";
import { LARGEST_DOCUMENT, requireDocumentSize, TASK_MESSAGES } from "./source.ts";

/** The list of all that is shown of a task. */
export const TASK_SCREEN = "ui_messages.json";
const CHANGES = "context_history.json";

/** Returns a task with the model's view of it; undefined if `file` is not of a task that has another file. */
export function gatherClineTask(disk: Disk, file: string, translator: Translator): GatheredSession | undefined {
  if (basename(file) !== TASK_MESSAGES) return undefined;
  const others = [TASK_SCREEN, CHANGES].map((name) => join(dirname(file), name));
  if (!others.some((path) => getInfo(disk, path)?.kind === "file")) return undefined;
  return {
    translator,
    info: () => stampTogether(disk, file, [...others, historyOf(file)]),
    read: () => recordsOf(disk, file, translator),
  };
}

/** The list of all tasks: <tasks>/<task>/ is in the same folder as <state>/. */
function historyOf(file: string): string {
  return join(dirname(dirname(dirname(file))), "state", "taskHistory.json");
}

function recordsOf(disk: Disk, file: string, { form, agent }: Translator): GatheredRecords {
  requireDocumentSize(file, getInfo(disk, file)?.size ?? 0, agent);
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
  const first = Object.keys(facts).length === 0 ? [] : [{ bytes: toBytes(JSON.stringify(facts)), number: 1 }];
  return { records: [...first, ...messages.map((bytes, n) => ({ bytes, number: n + 1 }))], warnings: [] };
}

/** Returns the messages that are left out: by the list of tasks, which Cline uses, or else by the last shown range. */
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

/** Returns the list in a file; an empty one if it has no readable list. */
function listIn(disk: Disk, file: string): readonly unknown[] {
  try {
    const size = getInfo(disk, file)?.size ?? 0;
    const value = size === 0 || size > LARGEST_DOCUMENT ? [] : parse(readWhole(disk, file));
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}
