/** The files and folders of a Session Store V2 container, and which paths lead into one. */

import { basename, dirname, join } from "node:path";

/** What the name of a container ends with. */
export const CONTAINER = ".v2";
/** What that of the pointer beside one ends with. */
export const POINTER = ".store.json";

/** Whether a path names a container. */
export function isContainerName(path: string): boolean {
  const name = basename(path);
  return name.endsWith(CONTAINER) && name.length > CONTAINER.length && !name.startsWith(".");
}

/** The file beside a container that says whether it is the session. */
export function pointerFile(container: string): string {
  return join(dirname(container), `${basename(container, CONTAINER)}${POINTER}`);
}

/** Sixteen digits, as files that are counted bear them. */
export function numbered(seq: number, ending: string): string {
  return `${String(seq).padStart(16, "0")}.${ending}`;
}

/** The number of a file that is counted, or 0 for any other. */
export function numberOf(name: string, ending: string): number {
  const digits = new RegExp(`^(\\d{16})\\.${ending}$`).exec(name)?.[1];
  return digits === undefined ? 0 : Number(digits);
}

export const headerFile = (container: string): string => join(container, "header.jsonl");
export const manifestFile = (container: string): string => join(container, "manifest.json");
export const segmentFolder = (container: string): string => join(container, "segments");
export const segmentFile = (container: string, seq: number): string =>
  join(container, "segments", numbered(seq, "seg"));
export const indexFile = (container: string): string => join(container, "index", "offsets.jsonl");
export const checkpointFolder = (container: string): string => join(container, "checkpoints");
export const checkpointFile = (container: string, seq: number): string =>
  join(container, "checkpoints", numbered(seq, "json"));
export const ledgerFile = (container: string): string => join(container, "migrations", "ledger.jsonl");
export const temporaryFolder = (container: string): string => join(container, "tmp");
export const spineFile = (container: string): string => join(container, "index-snapshot.bin");

/** The folders of a container. */
export const FOLDERS: readonly string[] = ["segments", "index", "checkpoints", "migrations", "tmp"];
/** That of the attachments, where there are any. */
export const BLOBS = "blobs";

/** The files that lie in the container's own folder, as a pattern. */
const FILES = [headerFile, manifestFile, spineFile].map((of) => basename(of("")).replaceAll(".", "\\.")).join("|");

/**
 * A path to a part of a container, whether that is the session, being built, or put away. Of the names in it each is one
 * that we give, so that a folder of the user's that happens to end with .v2 is none.
 */
const PART = new RegExp(
  `^(.*)/([^/]+\\.v2(?:\\.(?:staging|rolled-back|damaged)[^/]*)?)/((?:${[...FOLDERS, BLOBS].join("|")})(?:/[^/]+)?|\\.?(?:${FILES})[^/]*)$`,
);

/** Returns the folder above the container that a path leads into, and the names from the container on. */
export function partsOfContainer(path: string): { above: string; parts: string[] } | undefined {
  // Most paths lead into none.
  if (!path.includes(CONTAINER)) return undefined;
  const [, above, container, rest] = PART.exec(path) ?? [];
  return container === undefined ? undefined : { above, parts: [container, ...rest.split("/")] };
}
