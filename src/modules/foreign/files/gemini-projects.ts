/**
 * Working directories of Gemini CLI's sessions, whose files do not have them: `tmp/<project>/chats/` is the folder of a
 * session, and the project's directory is in `tmp/<project>/.project_root`, or in `projects.json` in the parent folder
 * of `tmp`. Older versions named the folder by the SHA-256 of the directory, which `projects.json` may still have.
 */

import { basename, dirname, join } from "node:path";
import { isObject } from "../../../core/foreign/messages.ts";
import { decodeText, parse } from "../../../core/json/json.ts";
import type { Disk } from "../../../storage/fs/disk.ts";
import { readBeginning, readIfFile } from "../../../storage/fs/files.ts";

/** Bytes of a list of projects that are read; a project has a hundred. */
const LONGEST = 4 << 20;

/** Returns the working directory of a session file; undefined if no file names it. Throws errno errors. */
export function findGeminiProject(disk: Disk, file: string): string | undefined {
  const project = projectFolder(file);
  if (project === undefined) return undefined;
  const root = readText(disk, join(project, ".project_root"))?.trim();
  if (root !== undefined && isDirectory(root)) return root;
  const listed = jsonIn(readText(disk, join(dirname(dirname(project)), "projects.json")));
  const projects = isObject(listed) && isObject(listed.projects) ? listed.projects : {};
  return Object.keys(projects).find((path) => projects[path] === basename(project) && isDirectory(path));
}

/** Returns the folder of a project, above `chats`, also for the file of a subagent, which is a folder deeper. */
function projectFolder(file: string): string | undefined {
  const above = [dirname(file), dirname(dirname(file))].find((folder) => basename(folder) === "chats");
  return above === undefined ? undefined : dirname(above);
}

function isDirectory(path: string): boolean {
  return /^(?:\/|[A-Za-z]:[\\/]|\\\\)/.test(path) && !path.includes("\0") && !path.includes("\n");
}

function readText(disk: Disk, file: string): string | undefined {
  const bytes = readIfFile(() => readBeginning(disk, file, LONGEST));
  try {
    return bytes === null ? undefined : decodeText(bytes);
  } catch {
    return undefined;
  }
}

function jsonIn(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : parse(new TextEncoder().encode(text));
  } catch {
    return undefined;
  }
}
