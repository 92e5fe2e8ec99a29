// Writes protocol.md: the preface by hand, the reference from the declarations. Runs on what `npm run build` has made.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { declarations } from "../dist/lib/handlers/shared/declarations.js";
import { protocolText } from "../dist/lib/server/reference.js";

const path = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const preface = readFileSync(path("docs/protocol-preface.md"), "utf8");
writeFileSync(path("protocol.md"), protocolText(declarations, preface));
