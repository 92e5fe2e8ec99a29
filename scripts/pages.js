// Writes the pictures of docs/pictures: a page of a session of `examples`, at 1280 and 400 pixels, and `browse` in a
// terminal, each light and dark. The server must be built; a Chromium must be installed, and for the terminal tmux.
//
//   node scripts/pages.js                  all of them
//   node scripts/pages.js <folder>      into another folder
//   node scripts/pages.js <folder> <n>  only those whose name contains it
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { isolatedEnvironment } from "../examples/client.js";
import { importSources, root } from "./import-sources.js";

const [into = join(root, "docs/pictures"), only = ""] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), "pi-session-pages-"));
try {
  const { takePictures } = await importSources('export { takePictures } from "./scripts/pages.ts";');
  const places = { root, home, into: resolve(into), only, env: isolatedEnvironment(home) };
  for (const { name, bytes } of await takePictures(places)) console.log(`${name} ${(bytes / 1000).toFixed(0)} kB`);
} finally {
  rmSync(home, { recursive: true, force: true });
}
