// Writes protocol.md: the preface by hand, the reference from the declarations.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const contents = `
  export { protocolText } from "./scripts/reference.ts";
  export { declarations } from "./src/handlers/shared/declarations.ts";`;
const { outputFiles } = await build({
  stdin: { contents, resolveDir: root },
  bundle: true,
  format: "esm",
  platform: "node",
  write: false,
});
const module = `data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`;
const { declarations, protocolText } = await import(module);
const preface = readFileSync(`${root}docs/protocol-preface.md`, "utf8");
writeFileSync(`${root}protocol.md`, protocolText(declarations, preface));
