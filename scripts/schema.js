// Writes the contract for machines: the OpenRPC document, one JSON Schema for everything, and TypeScript declarations.
// `npm run build` puts them into the package; the verb `schema` copies them from there.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compile } from "json-schema-to-typescript";
import { importSources, root } from "./import-sources.js";

/** Writes the files into a folder. Returns the repetition of each command, for the client. */
export async function writeSchema(folder) {
  const { declarations, makeOpenRpcDocument, getRepetition, makeSchemaBundle, makeTypesSchema, VERSION } =
    await importSources(`
      export { declarations } from "./src/handlers/shared/declarations.ts";
      export { getRepetition } from "./src/handlers/shared/repetition.ts";
      export { makeOpenRpcDocument } from "./src/server/openrpc.ts";
      export { makeSchemaBundle, makeTypesSchema } from "./scripts/schema-bundle.ts";
      export { VERSION } from "./src/version.ts";`);
  mkdirSync(folder, { recursive: true });
  const put = (name, text) => writeFileSync(join(folder, name), text);
  put("openrpc.json", `${JSON.stringify(makeOpenRpcDocument(declarations, VERSION), null, 2)}\n`);
  put("schema.json", `${JSON.stringify(makeSchemaBundle(declarations, VERSION), null, 2)}\n`);
  const written = readFileSync(join(root, "src/client/conversation.ts"), "utf8").replace(/^\/\*\*.*?\*\/\n/s, "");
  const names = [...written.matchAll(/^export type (\w+)/gm)].map(([, name]) => name);
  put("protocol.d.ts", (await declarationsText(makeTypesSchema(declarations, VERSION, names))) + written);
  return Object.fromEntries(declarations.commands.map((command) => [command.name, getRepetition(command)]));
}

/** Returns TypeScript declarations of a schema. */
async function declarationsText(schema) {
  const text = await compile(schema, "Protocol", {
    additionalProperties: false,
    bannerComment: "/** The protocol of pi-session-server in types. Made from its declarations; not to be edited. */",
    unreachableDefinitions: true,
    style: { printWidth: 120 },
  });
  // The generator's notes on its own work are of no use to a reader.
  return text
    .replace(/^\/\*\*\n \* This interface was referenced by [^\n]*\n[^\n]*\n \*\/\n/gm, "")
    .replace(/^( \*\n) \* This interface was referenced by [^\n]*\n \* via [^\n]*\n/gm, "");
}
