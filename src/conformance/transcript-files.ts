/**
 * The transcripts of this package. Where the program and Node are one file, they are in that file, and the build puts
 * another function in place of this one.
 */

import { fileURLToPath } from "node:url";
import { listNames, readBytes } from "./files.ts";

/** Returns the name of each file of the transcripts, and its text. */
export function readTranscriptFiles(): [name: string, text: string][] {
  const folder = fileURLToPath(new URL("../../docs/conformance/", import.meta.url));
  return listNames(folder).map((name) => [name, readBytes(`${folder}/${name}`).toString()]);
}
