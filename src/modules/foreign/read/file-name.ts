/** The name of a file with the folders that it is in, as translators get it (`TranslationTools.name`). */

/** Most folders that are named. More of a path says nothing about the session, and differs between machines. */
const MOST_FOLDERS = 2;

/** Returns the last parts of a path, without the file's ending. */
export function getNameInFolders(path: readonly string[]): string {
  const parts = path.filter((part) => part !== "").slice(-1 - MOST_FOLDERS);
  const own = parts.pop() ?? "";
  return [...parts, own.replace(/\.[^.]*$/, "")].join("/");
}

export function getOwnName(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1);
}

/** Returns the name of the file's folder; undefined if that is unknown. */
export function getFolderName(name: string): string | undefined {
  return name.split("/").at(-2);
}
