import { join } from "node:path";
import { type Disk, realDisk } from "../../storage/fs/disk.ts";
import { guardErrno, putInPlace } from "../../storage/fs/files.ts";
import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { UsageError } from "../options.ts";
import { readSchemaFile } from "../schema-files.ts";
import { show } from "../terminal/text.ts";
import { defineVerb } from "../verb.ts";

/** The files, by the word that prints one of them. The build makes them from the declarations of the commands. */
const FILES: Readonly<Record<string, string>> = {
  openrpc: "openrpc.json",
  json: "schema.json",
  types: "protocol.d.ts",
};

export default defineVerb({
  name: "schema",
  meaning: "write the protocol for machines: OpenRPC, JSON Schema, TypeScript types",
  operands: ["[openrpc|json|types]"],
  more: "It prints one of them, or writes openrpc.json, schema.json and protocol.d.ts to the folder of --out.",
  flags: { "--out": { value: "dir", meaning: "write all three to this folder" } },
  async run({ cwd }, { operands: [which], flags }) {
    const out = flags.get("--out");
    if (which !== undefined && !Object.hasOwn(FILES, which))
      throw new UsageError(`schema takes ${Object.keys(FILES).join(", ")}; it got ${which}.`);
    if ((which === undefined) === (out === undefined))
      throw new UsageError(
        "schema needs --out with a folder, or the name of the one to print: openrpc, json or types.",
      );
    if (out === undefined) return { text: Buffer.from(readSchemaFile(FILES[which])).toString("utf8") };
    const folder = toAbsolutePath(out, cwd);
    return { paths: await guardErrno("writing the schema", () => copyTo(realDisk, folder)) };
  },
  print: ({ text, paths }) => text ?? paths.map((path: string) => show`${path}`),
});

async function copyTo(disk: Disk, folder: string): Promise<string[]> {
  disk.makeFolder(folder);
  const paths: string[] = [];
  for (const name of Object.values(FILES)) {
    const path = join(folder, name);
    await putInPlace(disk, path, readSchemaFile(name), { replace: true, sync: false });
    paths.push(path);
  }
  return paths;
}
