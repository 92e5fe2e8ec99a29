/**
 * One disk as several processes have it. The others see a write of one of them one prefix after the other: at each, and
 * before each of its operations, the test may let others work. A process that dies does so at such a place.
 */

import type { Disk } from "../../src/storage/fs/disk.ts";
import type { FaultDisk } from "../support/disk.ts";

/** The end of a process; no code of ours must take it for an error of the disk. */
export class Death extends Error {}

/** A process cannot do the request while it sees the disk as it was in the middle of another's write. */
export class Untimely extends Error {}

interface Gate {
  pass(): void;
  fail(code: string): void;
}

interface Opened {
  readonly path: string;
  /** The descriptor on the disk; none where the file was opened while the view was held still, and is another by now. */
  disk: number | null;
  /** The one on the disk as it was then. */
  still: number | null;
}

export class ProcessDisk implements Disk {
  /** Called before each operation with its number since {@link begin}. */
  before: ((number: number) => void) | null = null;
  /** Lengths of the prefixes at which others see a write, and an action at each; the last is all of it. */
  prefixesOf: (path: string, bytes: Uint8Array) => readonly number[] = (_path, bytes) => [bytes.length];
  atPrefix: ((path: string, prefix: number, length: number) => void) | null = null;
  /** True if a sync waits for {@link passSync}. */
  holdsSyncs = false;
  private readonly disk: FaultDisk;
  private readonly gates: Gate[] = [];
  private readonly opened = new Map<number, Opened>();
  private descriptors = 100;
  private operations = 0;
  private still: FaultDisk | null = null;
  private isDead = false;

  constructor(disk: FaultDisk) {
    this.disk = disk;
  }

  // --- what tests do to it -------------------------------------------------------------------------------------

  /** Counts operations from here. */
  begin(): void {
    this.operations = 0;
  }

  get count(): number {
    return this.operations;
  }

  /** Shows the process the disk as it is now, whatever is written from here on. */
  holdStill(): void {
    this.still = this.disk.snapshot();
    for (const opened of this.opened.values()) opened.still = opened.disk;
  }

  goOn(): void {
    if (this.still)
      for (const opened of this.opened.values()) {
        if (opened.still !== null && opened.disk === null && this.isSame(opened))
          opened.disk = this.disk.openRead(opened.path);
        opened.still = null;
      }
    this.still = null;
  }

  private isSame({ path, still }: Opened): boolean {
    try {
      return this.still?.infoOf(still as number).inode === this.disk.info(path).inode;
    } catch {
      return false;
    }
  }

  die(): void {
    this.isDead = true;
    for (const { disk } of this.opened.values()) if (disk !== null) this.disk.close(disk);
    this.opened.clear();
    this.gates.length = 0;
  }

  /** Lets the oldest sync that waits end; returns whether there was one. */
  passSync(code?: string): boolean {
    const gate = this.gates.shift();
    if (code === undefined) gate?.pass();
    else gate?.fail(code);
    return gate !== undefined;
  }

  private get current(): FaultDisk {
    return this.still ?? this.disk;
  }

  private step(): void {
    if (this.isDead) throw new Death();
    this.before?.(this.operations++);
    if (this.isDead) throw new Death();
  }

  private stepToChange(): void {
    this.step();
    if (this.still) throw new Untimely();
  }

  private of(fd: number): number {
    const opened = this.opened.get(fd);
    const found = this.still ? opened?.still : opened?.disk;
    if (found === undefined || found === null) throw Object.assign(new Error("EBADF"), { code: "EBADF" });
    return found;
  }

  private describe(path: string, fd: number): number {
    this.opened.set(++this.descriptors, this.still ? { path, disk: null, still: fd } : { path, disk: fd, still: null });
    return this.descriptors;
  }

  // --- the operations ------------------------------------------------------------------------------------------

  openRead(path: string): number {
    this.step();
    return this.describe(path, this.current.openRead(path));
  }

  openAppend(path: string): number {
    this.stepToChange();
    return this.describe(path, this.disk.openAppend(path));
  }

  create(path: string): number {
    this.stepToChange();
    return this.describe(path, this.disk.create(path));
  }

  close(fd: number): void {
    this.step();
    const opened = this.opened.get(fd);
    this.opened.delete(fd);
    if (opened && opened.disk !== null) this.disk.close(opened.disk);
  }

  write(fd: number, bytes: Uint8Array): number {
    this.stepToChange();
    const { path } = this.opened.get(fd) as Opened;
    // A copy: others may reuse the memory of these bytes meanwhile.
    const whole = Uint8Array.from(bytes);
    let written = 0;
    for (const prefix of this.prefixesOf(path, whole)) {
      if (prefix > written) this.disk.write(this.of(fd), whole.subarray(written, prefix));
      written = Math.max(written, prefix);
      this.atPrefix?.(path, written, whole.length);
      if (this.isDead) throw new Death();
    }
    if (written < whole.length) this.disk.write(this.of(fd), whole.subarray(written));
    return whole.length;
  }

  sync(fd: number): Promise<void> {
    this.stepToChange();
    if (!this.holdsSyncs) return this.disk.sync(this.of(fd));
    return new Promise((resolve, reject) => {
      const pass = (): void => {
        if (!this.isDead) this.disk.syncNow(this.of(fd));
        resolve();
      };
      this.gates.push({ pass, fail: (code) => reject(Object.assign(new Error(code), { code })) });
    });
  }

  /** An operation that only reads, which is done on the disk as the process sees it. */
  private reads<Name extends keyof Disk>(name: Name, takesDescriptor = false): Disk[Name] {
    return this.passed(name, () => this.step(), takesDescriptor ? 0 : -1);
  }

  /** One that changes something. `at` is where among its arguments a descriptor stands. */
  private changes<Name extends keyof Disk>(name: Name, at = -1): Disk[Name] {
    return this.passed(name, () => this.stepToChange(), at);
  }

  private passed<Name extends keyof Disk>(name: Name, step: () => void, at: number): Disk[Name] {
    const passing = (...args: unknown[]): unknown => {
      step();
      if (at >= 0) args[at] = this.of(args[at] as number);
      const { current } = this;
      return (current[name as keyof FaultDisk] as (...all: unknown[]) => unknown).apply(current, args);
    };
    return passing as Disk[Name];
  }

  read = this.reads("read", true);
  infoOf = this.reads("infoOf", true);
  info = this.reads("info");
  names = this.reads("names");
  realPath = this.reads("realPath");
  truncate = this.changes("truncate", 0);
  syncNow = this.changes("syncNow", 0);
  copyMode = this.changes("copyMode", 1);
  syncFolder = async (path: string): Promise<void> => this.syncFolderNow(path);
  syncFolderNow = this.changes("syncFolderNow");
  link = this.changes("link");
  rename = this.changes("rename");
  remove = this.changes("remove");
  removeFolder = this.changes("removeFolder");
  makeFolder = this.changes("makeFolder");
}
