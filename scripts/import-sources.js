// Imports TypeScript of the project: bundled, because not every version of Node that we support reads it.
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export const root = fileURLToPath(new URL("..", import.meta.url));

/** The place of every file: in a folder of a folder of the root. */
const PLACE = JSON.stringify(new URL("../src/conformance/rules.ts", import.meta.url));

/** Returns a module of these export statements, whose paths begin at the root. */
export async function importSources(contents) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: root },
    bundle: true,
    format: "esm",
    platform: "node",
    define: { "import.meta.url": PLACE },
    write: false,
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}
