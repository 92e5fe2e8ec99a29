/**
 * A disk that reaches nothing outside of some folders, whatever links other programs put in the place of what they may
 * change, and whenever they do. A path is not checked and then used: each folder in it is opened from the one above it
 * without following a link, and the operation names only the last part, in the folder that is open. A link is read and
 * its target walked in the same way, as long as that lies in the folders again.
 *
 * What cannot be told: a hard link to a file outside is that file, and a folder that is moved out while it is in use has
 * been inside.
 */

import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { partsOfContainer } from "./container-paths.ts";
import type { Disk, OpenFolders } from "./disk.ts";
import { type End, linkError, type Way, walkedDisk } from "./walked-disk.ts";

export interface Confines {
  /** Folders that a host may name paths in. */
  readonly given: readonly string[];
  /** Folders of our own files. No link leads from the given ones there, nor out of each kind of them. */
  readonly own: readonly string[];
}

export interface ConfinedDisk extends Disk {
  /** Throws path_outside_root unless the path lies below a folder that hosts may name, with every link followed. */
  demand(path: string): void;
  /** Whether a path is followed without a moment between check and use. */
  readonly isWalked: boolean;
  /** Closes the folders that are held open. */
  release(): void;
}

/** Returns the failure for a path that leads out of the folders. */
function outsideFailure(path: string): Failure {
  return new Failure("path_outside_root", undefined, { path });
}

/** The folders are resolved here, once; they need not be there yet. */
export function confinedDisk(disk: Disk, confines: Confines): ConfinedDisk {
  const roots = [
    ...confines.given.map((folder) => rootOf(disk, folder, "given")),
    ...confines.own.map((folder) => rootOf(disk, folder, "own")),
    // The inner one counts: our state folder may lie in a folder that is given, and what is archived in that.
  ].sort((a, b) => b.name.length - a.name.length);
  const walker = disk.folders && new Walker(disk, disk.folders, roots);
  const confined = walkedDisk(disk, walker ?? checkedWay(disk, roots));
  const realOf = (path: string): string => {
    try {
      return confined.realPath(path);
    } catch (error) {
      if (error instanceof Failure) throw error;
      const root = roots.find(({ name, real }) => name === path || real === path);
      return root ? root.real : join(realOf(dirname(path)), basename(path));
    }
  };
  return {
    ...confined,
    demand(path) {
      const real = realOf(whole(path));
      const isBelowOne = roots.some((root) => root.kind === "given" && real !== root.real && isBelow(root.real, real));
      if (!isBelowOne) throw outsideFailure(path);
    },
    isWalked: walker !== undefined,
    release: () => walker?.release(),
  };
}

/** A folder in which allowed paths begin. */
interface Root {
  readonly kind: keyof Confines;
  /** As it was named. */
  readonly name: string;
  /** Without links. */
  readonly real: string;
}

function rootOf(disk: Disk, folder: string, kind: Root["kind"]): Root {
  const name = resolve(folder);
  return { kind, name, real: realPathOf(disk, name) };
}

/** Returns the real path of what need not be there: that of the nearest folder above it that is. */
export function realPathOf(disk: Disk, path: string): string {
  try {
    return disk.realPath(path);
  } catch (error) {
    if (error instanceof Failure) throw error;
    const above = dirname(path);
    return above === path ? path : join(realPathOf(disk, above), basename(path));
  }
}

/**
 * Returns what of a path lies below a folder, without a slash before it and with every `..` in it; undefined when it lies
 * elsewhere.
 */
function below(folder: string, path: string): string | undefined {
  if (path === folder) return "";
  const start = folder.endsWith("/") ? folder : `${folder}/`;
  return path.startsWith(start) ? path.slice(start.length) : undefined;
}

/** Whether a path without links lies in a folder, or is it. */
export function isBelow(folder: string, path: string): boolean {
  const rest = relative(folder, path);
  return rest !== ".." && !rest.startsWith(`..${sep}`) && !isAbsolute(rest);
}

/** Links in one path before it counts as a circle, as on Linux. */
const MOST_LINKS = 40;
/** Bytes of a path, as on Linux: what is made by parts could not be named by other programs. */
const MOST_PATH = 4096;
/** Folders held open. */
const MOST_OPEN = 64;

/** Where a walk is: in which folder, by its real path, and what it still has before it. */
interface Walk {
  readonly kind: Root["kind"];
  at: string;
  /** Its descriptor, where that has been looked up. */
  fd?: number;
  parts: string[];
  links: number;
}

class Walker implements Way {
  readonly plain = true;
  private readonly disk: Disk;
  private readonly folders: OpenFolders;
  private readonly roots: readonly Root[];
  /** Open folders by their real path, the one used last at the end. */
  private readonly open = new Map<string, number>();
  /** Descriptors that are to be closed when no path needs them. */
  private stale: number[] = [];
  /** Operations under way: one with two paths needs both of their folders. */
  private depth = 0;

  constructor(disk: Disk, folders: OpenFolders, roots: readonly Root[]) {
    this.disk = disk;
    this.folders = folders;
    this.roots = roots;
  }

  use<T>(path: string, end: End, run: (path: string) => T): T {
    return this.walking(() => this.walk(path, end, run));
  }

  realPath(path: string): string {
    return this.walking(() =>
      this.walk(path, "followed", (at, real) => {
        if (this.disk.info(at, true).kind === "link") throw linkError(at);
        return real;
      }),
    );
  }

  makeRoot(path: string): string[] | undefined {
    const name = resolve(path);
    const root = this.roots.find((known) => known.name === name || known.real === name);
    return root && this.walking(() => this.makeReal(root.real, name));
  }

  release(): void {
    this.stale.push(...this.open.values());
    this.open.clear();
    this.closeStale();
  }

  // --- paths -----------------------------------------------------------------------------------------------------

  private walk<T>(path: string, end: End, run: (path: string, real: string) => T): T {
    if (Buffer.byteLength(path) >= MOST_PATH) throw errno("ENAMETOOLONG", path);
    const walk = this.begin(path);
    for (;;) {
      const part = walk.parts.shift();
      if (part === undefined) return run(`${this.pathTo(walk)}/.`, walk.at);
      if (part === ".") continue;
      if (part === "..") {
        this.goUp(walk, path);
        continue;
      }
      if (walk.parts.length > 0 || end === "folder") {
        this.enter(walk, part, path);
        continue;
      }
      const last = `${this.pathTo(walk)}/${part}`;
      if (end === "itself") return run(last, join(walk.at, part));
      try {
        return run(last, join(walk.at, part));
      } catch (error) {
        const target = (error as NodeJS.ErrnoException).code === "ELOOP" ? this.linkAt(last) : undefined;
        if (target === undefined) throw error;
        this.follow(walk, part, target, path);
      }
    }
  }

  /** Begins in the innermost root that the path names. */
  private begin(path: string): Walk {
    const named = whole(path);
    // A folder may have other names outside, which are looked up once: what lies below it is walked all the same.
    const place =
      this.rootIn(named) ?? this.rootIn(join(realPathOf(this.disk, dirname(named)), basename(named)), "given");
    if (!place) throw outsideFailure(path);
    const { kind, real } = place.root;
    const walk: Walk = { kind, at: real, parts: partsOf(place.rest), links: 0 };
    // What is held open by its real path needs no walk.
    const ahead = walk.parts.slice(0, -1);
    if (ahead.length > 0 && !ahead.includes("..") && !ahead.includes(".")) {
      const at = join(real, ...ahead);
      const fd = this.held(at);
      if (fd !== undefined) return { ...walk, at, fd, parts: walk.parts.slice(-1) };
    }
    return walk;
  }

  private rootIn(path: string, kind?: Root["kind"]): { root: Root; rest: string } | undefined {
    for (const root of this.roots) {
      if (kind !== undefined && root.kind !== kind) continue;
      const rest = below(root.name, path) ?? below(root.real, path);
      if (rest !== undefined) return { root, rest };
    }
    return undefined;
  }

  /** Goes on with a path that is not below where the walk is. Throws path_outside_root. */
  private jump(walk: Walk, to: string, path: string): void {
    const place = this.rootIn(to, walk.kind);
    if (!place) throw outsideFailure(path);
    goTo(walk, place.root.real);
    walk.parts = partsOf(place.rest);
  }

  private goUp(walk: Walk, path: string): void {
    const above = dirname(walk.at);
    const isInside = this.roots.some(({ kind, real }) => kind === walk.kind && isBelow(real, above));
    if (isInside) goTo(walk, above);
    else this.jump(walk, [above === "/" ? "" : above, ...walk.parts].join("/"), path);
  }

  private enter(walk: Walk, part: string, path: string): void {
    const next = join(walk.at, part);
    try {
      goTo(walk, next, this.folder(next));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOTDIR") throw error;
      const target = this.linkAt(`${this.pathTo(walk)}/${part}`);
      if (target === undefined) throw error;
      this.follow(walk, part, target, path);
    }
  }

  /** Follows a link by hand. In a container there is none. */
  private follow(walk: Walk, part: string, target: string, path: string): void {
    const link = join(walk.at, part);
    const container = partsOfContainer([link, ...walk.parts].join("/"));
    if (container && link.length >= join(container.above, container.parts[0]).length) throw linkError(path);
    if (++walk.links > MOST_LINKS) throw errno("ELOOP", path);
    walk.parts = [...partsOf(target), ...walk.parts];
    if (isAbsolute(target)) this.jump(walk, `/${walk.parts.join("/")}`, path);
  }

  /** Returns where the link at the end of a path leads; undefined where there is none. */
  private linkAt(path: string): string | undefined {
    try {
      return this.folders.readLink(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EINVAL") return undefined;
      throw error;
    }
  }

  // --- folders ---------------------------------------------------------------------------------------------------

  private pathTo(walk: Walk): string {
    walk.fd ??= this.folder(walk.at);
    return this.folders.path(walk.fd);
  }

  /** Returns what paths begin with that go on from a folder. */
  private pathOf(real: string): string {
    return this.folders.path(this.folder(real));
  }

  /** Returns the descriptor of the folder that has a real path now. Throws ENOTDIR where a link has come in its place. */
  private folder(real: string): number {
    const held = this.held(real);
    if (held !== undefined) return held;
    const fd = this.folders.open(real === "/" ? real : `${this.pathOf(dirname(real))}/${basename(real)}`);
    this.open.set(real, fd);
    return fd;
  }

  /**
   * Returns the descriptor that is held of a folder. One of a folder that was moved, or removed, is given up: what the
   * path names now counts, as it does without being held.
   */
  private held(real: string): number | undefined {
    const fd = this.open.get(real);
    if (fd === undefined) return undefined;
    this.open.delete(real);
    if (this.folders.place(fd) === real) {
      this.open.set(real, fd);
      return fd;
    }
    this.stale.push(fd);
    return undefined;
  }

  /** Creates what is missing of a folder without links in its path; returns that, as the folder's name has it. */
  private makeReal(real: string, name: string): string[] {
    const missing: string[] = [];
    let at = real;
    for (;;) {
      try {
        this.folder(at);
        break;
      } catch (error) {
        if (!isErrno(error) || error.code !== "ENOENT") throw error;
        missing.unshift(at);
        at = dirname(at);
      }
    }
    for (const folder of missing) {
      const above = this.pathOf(dirname(folder));
      try {
        this.folders.make(`${above}/${basename(folder)}`);
        this.disk.syncFolderNow(`${above}/.`);
      } catch (error) {
        // Another process may have made it in the meantime.
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    }
    const made = [name];
    while (made.length < missing.length) made.unshift(dirname(made[0]));
    return missing.length === 0 ? [] : made;
  }

  private walking<T>(run: () => T): T {
    this.depth++;
    try {
      return run();
    } finally {
      this.depth--;
      this.closeStale();
    }
  }

  private closeStale(): void {
    if (this.depth > 0) return;
    for (const [real, fd] of this.open) {
      if (this.open.size <= MOST_OPEN) break;
      this.open.delete(real);
      this.stale.push(fd);
    }
    for (const fd of this.stale.splice(0)) this.disk.close(fd);
  }
}

/** Where folders cannot be held open, the real path is looked at right before the system follows it. */
function checkedWay(disk: Disk, roots: readonly Root[]): Way {
  const demand = (path: string, kind: Root["kind"]): void => {
    const real = realPathOf(disk, path);
    if (!roots.some((root) => root.kind === kind && isBelow(root.real, real))) throw outsideFailure(path);
  };
  const kindOf = (path: string): Root["kind"] =>
    roots.find(({ name, real }) => isBelow(name, path) || isBelow(real, path))?.kind ?? "given";
  return {
    plain: false,
    use(path, end, run) {
      const named = whole(path);
      demand(end === "itself" ? dirname(named) : named, kindOf(named));
      return run(path);
    },
    realPath(path) {
      demand(path, kindOf(whole(path)));
      return disk.realPath(path);
    },
    makeRoot(path) {
      const name = resolve(path);
      return roots.some((root) => root.name === name || root.real === name) ? disk.makeFolder(path) : undefined;
    },
  };
}

/** Returns a path from the root on. What `..` means in it depends on the links before, so it stays. */
function whole(path: string): string {
  return isAbsolute(path) ? path : resolve(path);
}

function goTo(walk: Walk, at: string, fd?: number): void {
  walk.at = at;
  walk.fd = fd;
}

function partsOf(path: string): string[] {
  const parts = path.split("/").filter((part) => part !== "");
  // With a slash at its end, a path means a folder.
  if (path.endsWith("/") && parts.length > 0) parts.push(".");
  return parts;
}

function errno(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}
