/** Sessions as JSONL files. */

import { dirname } from "node:path";
import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { concat } from "../../core/json/json.ts";
import type { Beginning, ComingContent, Content, Log, Store } from "../../core/ports/store.ts";
import { claimName } from "../fs/chunked-io.ts";
import { closeQuietly, type FileInfo, isAbsent, publishNew, writeAll } from "../fs/disk.ts";
import { isNameTaken, writeTemporary } from "../fs/files.ts";
import { makeFolderIn, UnsyncedFolders } from "../fs/folders.ts";
import { sweepTemporaryFiles } from "../fs/staging.ts";
import { isUnchanged } from "../fs/stamps.ts";
import { locateLock } from "../locks/lock-paths.ts";
import { runIfLocked } from "../locks/locks.ts";
import { dropAttachments, getAttachmentFolder, shareAttachments } from "../log/attachments.ts";
import { makeNotPublishedFailure } from "../log/failures.ts";
import { FileLog } from "../log/file-log.ts";
import { LF } from "../log/lines.ts";
import { isBeingBegun, runWithNewId } from "./create-and-swap.ts";
import { WrittenLines } from "./file-index.ts";
import { JsonlBackend, type JsonlOptions, openLog } from "./log.ts";

/** Bytes after which a sync begins during the write: 245 MB are durable after 260 ms, and after 310 with one sync. */
const SYNCED_EARLY = 1 << 25;

export function makeJsonlStore(options: JsonlOptions): Store {
  const fileOf = (beginning: Beginning): string => beginning.file ?? options.fileFor(beginning.header);
  const publication = (beginning: Beginning): Publication => new Publication(options, beginning, fileOf(beginning));
  return {
    name: "jsonl",
    create(beginning) {
      const backend = new JsonlBackend(options, fileOf(beginning));
      backend.begin(beginning);
      return new FileLog(backend);
    },
    publish: (beginning, content) => publish(options, publication(beginning), content),
    publishNow: (beginning, content) => publishNow(options, publication(beginning), content),
    open: (file, readOnly) => openLog(readOnly ? { ...options, readOnly } : options, file),
  };
}

/** Attempts to name a session whose id another process has locked, and milliseconds between them. */
const MOST_TRIES = 400;
const BETWEEN_TRIES = 5;

/** A new session file that gets its name when it is whole, and is opened with the index from writing it. */
class Publication {
  readonly file: string;
  /** Folders whose names are to be synced once the file has its own. */
  readonly unsynced: UnsyncedFolders;
  private readonly options: JsonlOptions;
  private readonly beginning: Beginning;
  private readonly written: WrittenLines;
  private readonly attachments: string;
  private named: FileInfo | undefined;
  /** True if the folder of the attachments is one that we made: nothing else may be removed. */
  private isFolderOurs = false;

  constructor(options: JsonlOptions, beginning: Beginning, file: string) {
    this.options = options;
    this.beginning = beginning;
    this.file = file;
    this.unsynced = new UnsyncedFolders(options.disk);
    this.written = new WrittenLines(beginning.headerLine);
    this.attachments = getAttachmentFolder(file);
  }

  /** Makes the folders, and shares the attachments. Returns the folder of these, if its names are to be synced. */
  prepare(): string | undefined {
    const { disk, env, durability } = this.options;
    const { attachmentsOf } = this.beginning;
    this.unsynced.addFound(makeFolderIn(disk, dirname(this.file)));
    this.unsynced.add(dirname(this.file));
    sweepTemporaryFiles(disk, dirname(this.file), env.now());
    if (attachmentsOf === undefined || isAbsent(disk, getAttachmentFolder(attachmentsOf))) return undefined;
    this.isFolderOurs = disk.makeFolder(this.attachments).includes(this.attachments);
    shareAttachments(disk, attachmentsOf, this.attachments);
    return durability === "sync" ? this.attachments : undefined;
  }

  /** Writes the header to the temporary file, and yields the lines after it. */
  *lines(fd: number, content: Content): Generator<Uint8Array> {
    writeAll(this.options.disk, fd, concat([this.beginning.headerLine, LF]));
    yield* this.written.record(content);
  }

  /** Does the same with lines that are waited for. */
  async *comingLines(fd: number, content: ComingContent): AsyncGenerator<Uint8Array> {
    yield* this.lines(fd, []);
    for await (const piece of content) yield* this.written.record([piece]);
  }

  /** Notes that everything is in the temporary file. */
  whole(fd: number): void {
    this.written.end(this.options.disk.infoOf(fd));
  }

  /** Gives the temporary file its name; waits while another process gives one to a session with the same id. */
  async nameInTurn(temporary: string): Promise<void> {
    for (let tries = 1; ; tries++)
      try {
        return this.name(temporary);
      } catch (error) {
        if (!isBeingBegun(error) || tries === MOST_TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, BETWEEN_TRIES));
      }
  }

  name(temporary: string): void {
    const { beginning, options, file } = this;
    beginning.requireNew?.();
    const claim = (): FileInfo => claimName(options.disk, temporary, file);
    this.named = beginning.isGivenId ? runWithNewId(options, file, beginning.header, claim) : claim();
  }

  open(): Log {
    return openLog(this.options, this.file, false, this.written);
  }

  /** Removes the new files, unless another program uses them by now. Returns the failure for the caller. */
  undo(error: unknown): Failure {
    const { file, named } = this;
    if (named) {
      this.unpublish(named);
      return makeNotPublishedFailure(error, this.options.disk, file, this.beginning.header.id);
    }
    this.dropUnused();
    if (isNameTaken(error))
      return new Failure("already_exists", `There is a file at ${file} already. Choose another path.`, {
        sessionPath: file,
      });
    return toStorageFailure(error, "making the file of the session");
  }

  /** Removes the file that has its name, and its attachments, if that can be. */
  private unpublish(named: FileInfo): void {
    const { options, file } = this;
    const { disk, locks } = options;
    runIfLocked(
      locks,
      () => named,
      locateLock(disk, file, named.inode),
      () => {
        if (!isUnchanged(disk.info(file), named)) return;
        disk.remove(file);
        if (this.isFolderOurs) dropAttachments(disk, file);
      },
    );
  }

  /** Removes the attachments of a file that has no name. Where another file got it meanwhile, they are that one's. */
  private dropUnused(): void {
    const { file, isFolderOurs } = this;
    const { disk } = this.options;
    try {
      if (isFolderOurs && isAbsent(disk, file)) dropAttachments(disk, file);
    } catch {
      // Without the session nothing uses them.
    }
  }
}

async function publish(options: JsonlOptions, made: Publication, content: Content | ComingContent): Promise<Log> {
  const { disk, durability } = options;
  try {
    const shared = made.prepare();
    if (shared !== undefined) await disk.syncFolder(shared);
    const fill = async (fd: number): Promise<void> => {
      const pieces = Symbol.asyncIterator in content ? made.comingLines(fd, content) : made.lines(fd, content);
      await write(options, fd, pieces);
      made.whole(fd);
    };
    // It is on the medium already.
    await writeTemporary(disk, made.file, fill, { sync: false }, (temporary) => made.nameInTurn(temporary));
    if (durability === "sync") await made.unsynced.sync();
    return made.open();
  } catch (error) {
    throw made.undo(error);
  }
}

function publishNow({ disk, durability }: JsonlOptions, made: Publication, content: Content): Log {
  const isSynced = durability === "sync";
  try {
    const shared = made.prepare();
    if (shared !== undefined) disk.syncFolderNow(shared);
    const fill = (fd: number): void => {
      for (const piece of made.lines(fd, content)) writeAll(disk, fd, piece);
      if (isSynced) disk.syncNow(fd);
      made.whole(fd);
    };
    closeQuietly(
      disk,
      publishNew(disk, made.file, fill, (temporary) => made.name(temporary)),
    );
    if (isSynced) made.unsynced.syncNow();
    return made.open();
  } catch (error) {
    throw made.undo(error);
  }
}

/** Writes pieces to a file and, with `sync`, makes them durable. No sync runs on when it settles, even by an error. */
async function write(
  { disk, durability, syncedEarly = SYNCED_EARLY }: JsonlOptions,
  fd: number,
  pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const syncs: Promise<void>[] = [];
  let unsynced = 0;
  const put = (piece: Uint8Array): void => {
    writeAll(disk, fd, piece);
    unsynced += piece.length;
    if (unsynced < syncedEarly || durability !== "sync") return;
    syncs.push(disk.sync(fd, true));
    unsynced = 0;
  };
  try {
    if (Symbol.asyncIterator in pieces) for await (const piece of pieces) put(piece);
    else for (const piece of pieces) put(piece);
    if (durability === "sync") syncs.push(disk.sync(fd, syncs.length > 0));
    // The system reports a failure to one of these syncs and not to those after it.
    await Promise.all(syncs);
  } finally {
    await Promise.allSettled(syncs);
  }
}
