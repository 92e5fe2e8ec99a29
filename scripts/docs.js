// Writes protocol.md: the preface by hand, the reference from the declarations. Writes the list of rules into
// docs/conformance.md, the options and verbs into docs/command-line.md, and the files into docs/map.md.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const contents = `
  export { formatProtocol } from "./scripts/reference.ts";
  export { declarations } from "./src/handlers/shared/declarations.ts";
  export { listThemes } from "./src/conformance/rules.ts";
  export { writeCommandLine } from "./scripts/command-line.ts";
  export { writeMap } from "./scripts/map.ts";
  export { writeRules } from "./scripts/rules.ts";`;
const { outputFiles } = await build({
  stdin: { contents, resolveDir: root },
  bundle: true,
  format: "esm",
  platform: "node",
  // The transcripts lie where they do from a file of the kit.
  define: { "import.meta.url": JSON.stringify(new URL("../src/conformance/rules.ts", import.meta.url)) },
  write: false,
});
const module = `data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`;
const { listThemes, declarations, formatProtocol, writeCommandLine, writeMap, writeRules } = await import(module);
const preface = readFileSync(`${root}docs/protocol-preface.md`, "utf8");
writeFileSync(`${root}protocol.md`, formatProtocol(declarations, preface));
const kit = `${root}docs/conformance.md`;
writeFileSync(kit, writeRules(readFileSync(kit, "utf8"), listThemes()));
const commandLine = `${root}docs/command-line.md`;
writeFileSync(commandLine, writeCommandLine(readFileSync(commandLine, "utf8")));
writeFileSync(`${root}docs/map.md`, writeMap(root));
