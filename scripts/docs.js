// Writes protocol.md: the preface by hand, the reference from the declarations. Writes the list of rules into
// docs/conformance.md, the options and verbs into docs/command-line.md, and the files into docs/map.md.
import { readFileSync, writeFileSync } from "node:fs";
import { importSources, root } from "./import-sources.js";

const { THEMES, declarations, formatProtocol, writeCommandLine, writeMap, writeRules } = await importSources(`
  export { formatProtocol } from "./scripts/reference.ts";
  export { declarations } from "./src/handlers/shared/declarations.ts";
  export { THEMES } from "./src/conformance/rules.ts";
  export { writeCommandLine } from "./scripts/command-line.ts";
  export { writeMap } from "./scripts/map.ts";
  export { writeRules } from "./scripts/rules.ts";`);
const preface = readFileSync(`${root}docs/protocol-preface.md`, "utf8");
writeFileSync(`${root}protocol.md`, formatProtocol(declarations, preface));
const kit = `${root}docs/conformance.md`;
writeFileSync(kit, writeRules(readFileSync(kit, "utf8"), THEMES));
const commandLine = `${root}docs/command-line.md`;
writeFileSync(commandLine, writeCommandLine(readFileSync(commandLine, "utf8")));
writeFileSync(`${root}docs/map.md`, writeMap(root));
