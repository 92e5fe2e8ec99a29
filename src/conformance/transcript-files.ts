/**
 * The transcripts of this package. Where the program and Node are one file, they are in that file, and the build puts
 * another function in place of this one.
 */

import { fileURLToPath } from "node:url";
import { bytesIn, namesAt } from "./files.ts";

/** Returns the transcripts of a folder, by default those of the package: the name of each file, and its text. */
export function transcriptFiles(folder = packageFolder()): [name: string, text: string][] {
  return namesAt(folder).map((name) => [name, bytesIn(`${folder}/${name}`).toString()]);
}

function packageFolder(): string {
  return fileURLToPath(new URL("../../docs/conformance/", import.meta.url));
}
