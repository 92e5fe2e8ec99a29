/**
 * Marks of changes that are done and whose record the disk refuses. Each is an empty file, whose name has the facts: a full
 * disk mostly has room for that. So a later process knows of the change, and undo takes back no older one in its place.
 */

import { join } from "node:path";
import { OPERATION_KINDS, type Operation } from "../../core/ports/operations.ts";
import { closeQuietly, type Disk, removeQuietly } from "../fs/disk.ts";
import { listNames } from "../fs/folders.ts";

const MARK = /^(\d{1,16})\.([0-9a-f]{12})\.([a-z]+)\.([0-9a-f]*)\.([^.]*)\.unrecorded$/;
/** Marks that are kept; the oldest go first. */
const MOST = 100;
/** Characters of a session's id in a name; of a longer one, the mark belongs to no session. */
const LONGEST_ID = 100;

const FINAL = "The disk had no room for its record, so that undo cannot take it back.";

export class UnrecordedMarks {
  private readonly disk: Disk;
  private readonly folder: string;
  /** The paths of the marks that this process made, by the ids of their operations. */
  private readonly made = new Map<string, string>();

  constructor(disk: Disk, folder: string) {
    this.disk = disk;
    this.folder = folder;
  }

  /** Marks an operation. Throws errno errors. */
  put({ id, at, kind, of = "", sessionId }: Operation): void {
    const { disk, folder, made } = this;
    if (made.has(id)) return;
    const session = encodeURIComponent(sessionId).replaceAll(".", "%2E");
    const facts = [Date.parse(at), id, kind, of, session.length > LONGEST_ID ? "" : session];
    const path = join(folder, `${facts.join(".")}.unrecorded`);
    disk.makeFolder(folder);
    closeQuietly(disk, disk.create(path));
    made.set(id, path);
    for (const old of this.names().slice(0, -MOST)) removeQuietly(disk, join(folder, old));
  }

  /** Removes the marks of operations that are recorded by now, or did not happen. */
  drop(ids: Iterable<string>): void {
    if (this.made.size === 0) return;
    for (const id of ids) {
      const path = this.made.get(id);
      if (path !== undefined) removeQuietly(this.disk, path);
      this.made.delete(id);
    }
  }

  /** Returns lines with the marked operations of other processes in their places. */
  addTo(lines: readonly object[]): object[] {
    const all = [...lines];
    for (const name of this.names()) {
      const operation = readMark(name);
      if (operation === undefined || this.made.has(operation.id)) continue;
      const before = all.findLastIndex(
        (line) => "at" in line && typeof line.at === "string" && line.at <= operation.at,
      );
      all.splice(before + 1, 0, operation);
    }
    return all;
  }

  /** Returns the names of all marks, the oldest first. */
  private names(): string[] {
    const names = listNames(this.disk, this.folder).filter((name) => MARK.test(name));
    return names.sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10));
  }
}

function readMark(name: string): Operation | undefined {
  const [, time, id, word, of, session] = MARK.exec(name) ?? [];
  const kind = OPERATION_KINDS.find((one) => one === word);
  if (kind === undefined) return undefined;
  return {
    ...{ id, kind, at: new Date(Number(time)).toISOString(), name: null, sessionPath: "" },
    ...(of === "" ? {} : { of }),
    sessionId: decodeURIComponent(session),
    text: `Unrecorded change: ${kind}.`,
    final: FINAL,
    stage: "done",
  };
}
