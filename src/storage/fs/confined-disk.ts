/**
 * A disk that reaches nothing outside of some folders, whatever links other programs create there and whenever they do.
 * A path is not checked first and used later: each folder in it is opened from the one above it without following a
 * link, and the operation names only the last part, in the open folder. A link is read, and its target is walked in the
 * same way if it lies in the folders too.
 *
 * Two cases cannot be detected: a hard link to a file outside is that file, and a folder that is moved out while it is
 * in use was inside when it was opened.
 */

import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { splitContainerPath } from "./container-paths.ts";
import { type Disk, makeFolders, type OpenFolders } from "./disk.ts";
import { type End, makeLinkError, type Way, walkDisk } from "./walked-disk.ts";

export interface Confines {
  /** Folders whose paths a host may name. */
  readonly given: readonly string[];
  /** Folders of our own files. No link is followed from the given folders into these, nor out of either kind. */
  readonly own: readonly string[];
}

export interface ConfinedDisk extends Disk {
  /** Throws path_outside_root unless the path, with every link followed, lies below one of the `given` folders. */
  requireInside(path: string): void;
  /** True if nothing can change a path between its check and its use. */
  readonly isWalked: boolean;
  /** Closes the folders that are held open. */
  release(): void;
}

/** Returns the failure for a path that leads out of the folders. */
function outsideFailure(path: string): Failure {
  return new Failure("path_outside_root", undefined, { path });
}

/** Returns a disk confined to folders. They are resolved here, once, and need not exist yet. */
export function confineDisk(disk: Disk, confines: Confines): ConfinedDisk {
  const roots = [
    ...confines.given.map((folder) => rootOf(disk, folder, "given")),
    ...confines.own.map((folder) => rootOf(disk, folder, "own")),
    // The innermost is matched first: our state folder may lie in a given folder, and the archive in the state folder.
  ].sort((a, b) => b.name.length - a.name.length);
  const walker = disk.folders && new Walker(disk, disk.folders, roots);
  const confined = walkDisk(disk, walker ?? checkedWay(disk, roots));
  return {
    ...confined,
    requireInside(path) {
      const real = getRealPath(confined, whole(path), (at) => roots.find((root) => isAt(root, at))?.real);
      const isBelowOne = roots.some((root) => root.kind === "given" && real !== root.real && isBelow(root.real, real));
      if (!isBelowOne) throw outsideFailure(path);
    },
    isWalked: walker !== undefined,
    release: () => walker?.release(),
  };
}

/** A folder in which permitted paths begin. */
interface Root {
  readonly kind: keyof Confines;
  /** Its given path, made absolute. */
  readonly name: string;
  /** Its path without links. */
  readonly real: string;
}

function rootOf(disk: Disk, folder: string, kind: Root["kind"]): Root {
  const name = resolve(folder);
  return { kind, name, real: getRealPath(disk, name) };
}

function isAt({ name, real }: Root, path: string): boolean {
  return name === path || real === path;
}

/** Returns the real path of a file; missing parts follow the nearest folder that exists or is `known`. */
export function getRealPath(disk: Disk, path: string, known?: (path: string) => string | undefined): string {
  try {
    return disk.realPath(path);
  } catch (error) {
    if (error instanceof Failure) throw error;
    const above = dirname(path);
    return known?.(path) ?? (above === path ? path : join(getRealPath(disk, above, known), basename(path)));
  }
}

/** Returns the real path if the disk shows it: a confined disk shows nothing above its folders. */
export function getKnownPath(disk: Disk, path: string): string {
  try {
    return getRealPath(disk, path);
  } catch {
    return path;
  }
}

/** Returns the rest of a path below a folder, with each `..` in it; undefined when it lies elsewhere. */
function below(folder: string, path: string): string | undefined {
  if (path === folder) return "";
  const start = folder.endsWith("/") ? folder : `${folder}/`;
  return path.startsWith(start) ? path.slice(start.length) : undefined;
}

/** Returns whether a path without links lies in a folder or is that folder. */
export function isBelow(folder: string, path: string): boolean {
  const rest = relative(folder, path);
  return rest !== ".." && !rest.startsWith(`..${sep}`) && !isAbsolute(rest);
}

/** Links in one path before it counts as a loop, as on Linux. */
const MAX_LINKS = 40;
/** Bytes of a path, as on Linux: other programs could not open a longer path that we created part by part. */
const MAX_PATH = 4096;
/** Maximum number of folders held open. */
const MAX_OPEN = 64;

/** State of a walk along a path. */
interface Walk {
  readonly kind: Root["kind"];
  /** Real path of the folder that was reached. */
  at: string;
  /** Its descriptor, once it was looked up. */
  fd?: number;
  /** Parts of the path that are still to be walked. */
  parts: string[];
  links: number;
}

class Walker implements Way {
  private readonly disk: Disk;
  private readonly folders: OpenFolders;
  private readonly roots: readonly Root[];
  /** Open folders by their real path, the most recently used one last. */
  private readonly open = new Map<string, number>();
  /** Descriptors to close once no path needs them. */
  private stale: number[] = [];
  /** Number of nested operations: one with two paths needs both of their folders open. */
  private depth = 0;

  constructor(disk: Disk, folders: OpenFolders, roots: readonly Root[]) {
    this.disk = disk;
    this.folders = folders;
    this.roots = roots;
  }

  use<T>(path: string, end: End, run: (path: string, plain: boolean) => T): T {
    return this.walking(() => this.walk(path, end, (at) => run(at, true)));
  }

  realPath(path: string): string {
    return this.walking(() =>
      this.walk(path, "followed", (at, real) => {
        if (this.disk.info(at, true).kind === "link") throw makeLinkError(at);
        return real;
      }),
    );
  }

  makeRoot(path: string): string[] | undefined {
    const name = resolve(path);
    const root = this.roots.find((known) => isAt(known, name));
    return root && this.walking(() => this.makeReal(root.real, name));
  }

  release(): void {
    this.stale.push(...this.open.values());
    this.open.clear();
    this.closeStale();
  }

  private walk<T>(path: string, end: End, run: (path: string, real: string) => T): T {
    if (Buffer.byteLength(path) >= MAX_PATH) throw errno("ENAMETOOLONG", path);
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

  /** Begins in the innermost root of the path. */
  private begin(path: string): Walk {
    const named = whole(path);
    // A root may have other paths, through links outside. The system resolves one once; deeper parts are walked.
    const place =
      this.rootIn(named) ?? this.rootIn(join(getRealPath(this.disk, dirname(named)), basename(named)), "given");
    if (!place) throw outsideFailure(path);
    const { kind, real } = place.root;
    const walk: Walk = { kind, at: real, parts: partsOf(place.rest), links: 0 };
    // A folder that is held open needs no walk.
    const ahead = walk.parts.slice(0, -1);
    if (ahead.length > 0 && !ahead.includes("..") && !ahead.includes(".")) {
      const at = join(real, ...ahead);
      const fd = this.openDescriptor(at);
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

  /** Continues a walk at a path elsewhere. Throws path_outside_root unless that lies in a root of the same kind. */
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

  /** Follows a link by walking its target. Throws ELOOP for a link in a container and for too many links. */
  private follow(walk: Walk, part: string, target: string, path: string): void {
    const link = join(walk.at, part);
    const container = splitContainerPath([link, ...walk.parts].join("/"));
    if (container && link.length >= join(container.above, container.parts[0]).length) throw makeLinkError(path);
    if (++walk.links > MAX_LINKS) throw errno("ELOOP", path);
    walk.parts = [...partsOf(target), ...walk.parts];
    if (isAbsolute(target)) this.jump(walk, `/${walk.parts.join("/")}`, path);
  }

  /** Returns the target of the link at the end of a path; undefined when there is no link. */
  private linkAt(path: string): string | undefined {
    try {
      return this.folders.readLink(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EINVAL") return undefined;
      throw error;
    }
  }

  private pathTo(walk: Walk): string {
    walk.fd ??= this.folder(walk.at);
    return this.folders.path(walk.fd);
  }

  /** Returns the prefix of paths that begin in a folder. */
  private pathOf(real: string): string {
    return this.folders.path(this.folder(real));
  }

  /** Returns the descriptor of the folder that now has a real path. Throws ENOTDIR when a link has replaced it. */
  private folder(real: string): number {
    const held = this.openDescriptor(real);
    if (held !== undefined) return held;
    const fd = this.folders.open(real === "/" ? real : `${this.pathOf(dirname(real))}/${basename(real)}`);
    this.open.set(real, fd);
    return fd;
  }

  /** Returns the open descriptor of a folder, if there is one. Drops that of a moved or removed folder. */
  private openDescriptor(real: string): number | undefined {
    const fd = this.open.get(real);
    if (fd === undefined) return undefined;
    this.open.delete(real);
    if (this.folders.pathOf(fd) === real) {
      this.open.set(real, fd);
      return fd;
    }
    this.stale.push(fd);
    return undefined;
  }

  /** Creates a folder and the missing ones above it, in a path without links. Returns them as paths of `name`. */
  private makeReal(real: string, name: string): string[] {
    const isThere = (folder: string): boolean => {
      try {
        this.folder(folder);
        return true;
      } catch (error) {
        if (!isErrno(error) || error.code !== "ENOENT") throw error;
        return false;
      }
    };
    const made = makeFolders(real, isThere, (folder) => {
      const above = this.pathOf(dirname(folder));
      this.folders.make(`${above}/${basename(folder)}`);
      this.disk.syncFolderNow(`${above}/.`);
    });
    return made.map((folder) => resolve(name, relative(real, folder)));
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
      if (this.open.size <= MAX_OPEN) break;
      this.open.delete(real);
      this.stale.push(fd);
    }
    for (const fd of this.stale.splice(0)) this.disk.close(fd);
  }
}

/** Checks the real path right before the system follows it, on systems where folders cannot be held open. */
function checkedWay(disk: Disk, roots: readonly Root[]): Way {
  const requireInside = (path: string, kind: Root["kind"]): void => {
    const real = getRealPath(disk, path);
    if (!roots.some((root) => root.kind === kind && isBelow(root.real, real))) throw outsideFailure(path);
  };
  const kindOf = (path: string): Root["kind"] =>
    roots.find(({ name, real }) => isBelow(name, path) || isBelow(real, path))?.kind ?? "given";
  return {
    use(path, end, run) {
      const named = whole(path);
      requireInside(end === "itself" ? dirname(named) : named, kindOf(named));
      return run(path, false);
    },
    realPath(path) {
      requireInside(path, kindOf(whole(path)));
      return disk.realPath(path);
    },
    makeRoot(path) {
      const name = resolve(path);
      return roots.some((root) => isAt(root, name)) ? disk.makeFolder(path) : undefined;
    },
  };
}

/** Returns an absolute path. Each `..` of an absolute one stays, because its meaning depends on the links before it. */
function whole(path: string): string {
  return isAbsolute(path) ? path : resolve(path);
}

function goTo(walk: Walk, at: string, fd?: number): void {
  walk.at = at;
  walk.fd = fd;
}

function partsOf(path: string): string[] {
  const parts = path.split("/").filter((part) => part !== "");
  // A path with a slash at its end means a folder.
  if (path.endsWith("/") && parts.length > 0) parts.push(".");
  return parts;
}

function errno(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}
