/** Paths of the files and folders in a container of Session Store V2, and a test for paths that lead into one. */

import { basename, dirname, join } from "node:path";

/** Suffix of a container's name. */
export const CONTAINER = ".v2";
/** Suffix of the name of the pointer file next to a container. */
export const POINTER = ".store.json";

/** Returns whether a path names a container. */
export function isContainerName(path: string): boolean {
  // Lists check thousands of files, and extracting each name takes as long as looking at it.
  if (!path.includes(CONTAINER)) return false;
  const name = basename(path);
  return name.endsWith(CONTAINER) && name.length > CONTAINER.length && !name.startsWith(".");
}

/** Returns the path of the file next to a container that records whether the container is the session. */
export function getPointerFile(container: string): string {
  return join(dirname(container), `${basename(container, CONTAINER)}${POINTER}`);
}

/** Returns the name of a numbered file: sixteen digits and the ending. */
export function makeNumberedName(seq: number, ending: string): string {
  return `${String(seq).padStart(16, "0")}.${ending}`;
}

/** Returns the number of a numbered file, or 0 for any other file. */
export function parseNumberedName(name: string, ending: string): number {
  const digits = new RegExp(`^(\\d{16})\\.${ending}$`).exec(name)?.[1];
  return digits === undefined ? 0 : Number(digits);
}

export const headerFile = (container: string): string => join(container, "header.jsonl");
export const manifestFile = (container: string): string => join(container, "manifest.json");
export const segmentFolder = (container: string): string => join(container, "segments");
export const segmentFile = (container: string, seq: number): string =>
  join(container, "segments", makeNumberedName(seq, "seg"));
export const indexFile = (container: string): string => join(container, "index", "offsets.jsonl");
export const checkpointFolder = (container: string): string => join(container, "checkpoints");
export const checkpointFile = (container: string, seq: number): string =>
  join(container, "checkpoints", makeNumberedName(seq, "json"));
export const ledgerFile = (container: string): string => join(container, "migrations", "ledger.jsonl");
export const temporaryFolder = (container: string): string => join(container, "tmp");
export const indexSnapshotFile = (container: string): string => join(container, "index-snapshot.bin");

/** The folders of a container. */
export const FOLDERS: readonly string[] = ["segments", "index", "checkpoints", "migrations", "tmp"];
/** The folder of the attachments, if there are any. */
export const BLOBS = "blobs";

/** Pattern of the files that lie directly in the container's folder. */
const FILES = [headerFile, manifestFile, indexSnapshotFile]
  .map((of) => basename(of("")).replaceAll(".", "\\."))
  .join("|");

/**
 * Pattern of a path to a part of a container, whether that is the session, is being built, or is kept as a backup. Each
 * name in it is one that we give, so that a folder of the user whose name happens to end with .v2 does not match.
 */
const PART = new RegExp(
  `^(.*)/([^/]+\\.v2(?:\\.(?:staging|rolled-back|damaged)[^/]*)?)/((?:${[...FOLDERS, BLOBS].join("|")})(?:/[^/]+)?|\\.?(?:${FILES})[^/]*)$`,
);

/** Returns the folder above the container that a path leads into, and the names from the container on. */
export function splitContainerPath(path: string): { above: string; parts: string[] } | undefined {
  // Most paths lead into no container.
  if (!path.includes(CONTAINER)) return undefined;
  const [, above, container, rest] = PART.exec(path) ?? [];
  return container === undefined ? undefined : { above, parts: [container, ...rest.split("/")] };
}

/**
 * Returns the container that a path leads into, be it a session or kept as a backup, whatever the path names there. A
 * folder of the user whose name happens to end with .v2 has none of its parts.
 */
export function findContainer(path: string, isThere: (part: string) => boolean): string | undefined {
  for (let above = dirname(path); above.includes(CONTAINER); above = dirname(above))
    if (/[^/]\.v2(?:\.|$)/.test(basename(above)) && [segmentFolder, manifestFile].some((of) => isThere(of(above))))
      return above;
  return undefined;
}

/** Returns the folders whose names a container needs: that of its segments, that of its index, and itself. */
export function getContainerFolders(container: string): string[] {
  return [segmentFolder(container), dirname(indexFile(container)), container];
}
