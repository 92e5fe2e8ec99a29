/**
 * The protocol for machines, as the build wrote it next to the program. Where the program and Node are one file, it is
 * in that file, and the build puts another function in place of this one.
 */

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { readWhole, realDisk } from "../storage/fs/disk.ts";

export function readSchemaFile(name: string): Uint8Array {
  const program = dirname(fileURLToPath(import.meta.url));
  return readWhole(realDisk, join(program, "../schema", name));
}
