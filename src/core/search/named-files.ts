/** Files that tool calls name: in their arguments, in the words of a command, in the heads of a patch. */

/** Names of arguments that hold paths, in lower case and without `_` and `-`. */
const PATHS = new Set(
  (
    "path paths file files filepath filepaths filename filenames targetfile relativepath absolutepath notebookpath " +
    "oldpath newpath sourcepath destinationpath source destination cwd workdir workingdirectory dir directory folder"
  ).split(" "),
);
/** Names of arguments that hold a command, or the words of one. */
const COMMANDS = new Set("command cmd commands script shellcommand argv args".split(" "));
/** The two heads of a file in a unified diff. */
const HEADS = /^--- (?:a\/)?([^\t\r\n]+)(?:\t[^\n]*)?\r?\n\+\+\+ (?:b\/)?([^\t\r\n]+)/gm;
/** Characters of the longest path that is looked at: longer ones are refused by every system. */
const LONGEST_PATH = 4096;
/** Characters of a command or patch that are searched for paths. */
const LONGEST_SOURCE = 1 << 16;
/** Files of one call. A command that names more is a program that was written into it. */
const MAX_FILES = 64;

/** Collects the files that one call names, as paths from the root if the session's directory is known. */
export class NamedFiles {
  private readonly found = new Set<string>();
  private readonly cwd: string | null;

  constructor(cwd: string | null) {
    this.cwd = cwd;
  }

  get all(): readonly string[] {
    return [...this.found];
  }

  /** Adds the files of an argument by the name of the argument. */
  addArgument(name: string, text: string): void {
    const plain = name.replace(/[_-]/g, "").toLowerCase();
    if (PATHS.has(plain)) this.add(text);
    if (COMMANDS.has(plain)) this.addCommand(text);
    this.addPatch(text);
  }

  addCommand(command: string): void {
    for (const word of wordsOf(withoutDocuments(command.slice(0, LONGEST_SOURCE))))
      for (const part of [word, ...(/\s/.test(word) ? word.split(/[\s"'`();|&<>]+/) : [])]) {
        if (part.length > LONGEST_PATH) continue;
        const path = part.replace(/^-{0,2}\w[\w-]*=|:\d+(?::\d+)?$/g, "");
        if (isPathLike(path)) this.add(path);
      }
  }

  /** Adds the files in the heads of a patch. */
  addPatch(text: string): void {
    if (!text.includes("\n+++ ") && !text.includes("*** ")) return;
    const patch = text.slice(0, LONGEST_SOURCE);
    for (const [, path] of patch.matchAll(/^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$/gm)) this.add(path);
    for (const [, ...pair] of patch.matchAll(HEADS)) for (const path of pair) if (path !== "/dev/null") this.add(path);
  }

  private add(path: string): void {
    // A number is not meant as a path.
    if (/^[\d.]*$/.test(path)) return;
    if (this.found.size >= MAX_FILES || path.length > LONGEST_PATH || /[\r\n\0]/.test(path)) return;
    const file = normalizeFileName(path.trim().replace(/^@/, ""), this.cwd);
    if (file !== undefined) this.found.add(file);
  }
}

/** Returns the words of a command line without their quotes, as far as that is possible without a shell. */
function* wordsOf(command: string): Generator<string> {
  for (const [word] of command.matchAll(/(?:[^\s"'\\|&;<>()`$]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/gs))
    yield word.replace(
      /\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'/gs,
      (_, escaped, double, single) => escaped ?? double?.replace(/\\(.)/gs, "$1") ?? single,
    );
}

/** Returns a command without the documents that it has within itself (`<<END`): they name files that it does not touch. */
function withoutDocuments(command: string): string {
  if (!command.includes("<<")) return command;
  const kept: string[] = [];
  let end: string | undefined;
  for (const line of command.split("\n")) {
    if (end !== undefined) {
      if (line.trim() === end) end = undefined;
      continue;
    }
    kept.push(line);
    end = /<<-?\s*(["']?)([\w.-]+)\1/.exec(line)?.[2];
  }
  return kept.join("\n");
}

/** Returns whether a word of a command may be a file: it has a slash or a dot, or begins like `Makefile`, `README`. */
function isPathLike(word: string): boolean {
  if (!/\w/.test(word) || /^-|^[\d.,:%-]+$|^(?!file:)[a-z][a-z\d+.-]*:\/\//i.test(word)) return false;
  return /[/\\]|\.\w|^[A-Z][A-Za-z]+$/.test(word);
}

/** Returns a path with slashes and without its detours, from the root if possible; undefined for an empty one. */
export function normalizeFileName(path: string, cwd: string | null): string | undefined {
  const given = path.normalize("NFC").replace(/^file:\/\//, "");
  const isFromRoot = /^[/\\]|^[A-Za-z]:[/\\]/.test(given);
  const isKnown = isFromRoot || (cwd !== null && cwd !== "");
  const parts: string[] = [];
  for (const part of `${isFromRoot || cwd === null ? "" : `${cwd.normalize("NFC")}/`}${given}`.split(/[/\\]+/)) {
    if (part === "" || part === ".") continue;
    if (part === ".." && parts.length > 0 && parts[parts.length - 1] !== "..") parts.pop();
    else if (part !== ".." || !isKnown) parts.push(part);
  }
  return parts.length === 0 ? undefined : `${isKnown ? "/" : ""}${parts.join("/")}`;
}

/** Returns whether one of the files is `wanted`, or ends with it by whole names. Both are normalized. */
export function hasFile(files: readonly string[], wanted: string): boolean {
  if (wanted.startsWith("/")) return files.includes(wanted);
  const end = `/${wanted}`;
  return files.some((file) => file === wanted || file.endsWith(end));
}

/** Number of names at the end of a path that the index has. */
const MAX_NAMES = 16;

/** Returns the ends of a file's path that a search may name, the shortest first. */
export function getPathEnds(file: string): string[] {
  const names = file.split("/").filter((name) => name !== "");
  return Array.from({ length: Math.min(MAX_NAMES, names.length) }, (_, n) => names.slice(-n - 1).join("/"));
}
