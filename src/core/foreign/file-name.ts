/** The name of a file with the folders that it is in, as translators get it (`TranslationTools.name`). */

/** Folders that are named at most. More of a path says nothing about the session, and differs from machine to machine. */
const MOST_FOLDERS = 2;

/** Returns the last parts of a path, without the file's ending. */
export function nameInFolders(path: readonly string[]): string {
  const parts = path.filter((part) => part !== "").slice(-1 - MOST_FOLDERS);
  const own = parts.pop() ?? "";
  return [...parts, own.replace(/\.[^.]*$/, "")].join("/");
}

/** Returns the name of the file itself. */
export function ownName(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1);
}

/** Returns the name of the folder that the file is in; undefined where that is not known. */
export function folderName(name: string): string | undefined {
  return name.split("/").at(-2);
}
