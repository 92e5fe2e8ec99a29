// Writes the pictures of docs/pictures from `examples`: the page, its tree and its comparison, the viewer's costs and a
// live session, each at 1280 and 400 pixels, light and dark, and a terminal. The server must be built; a Chromium must be
// installed, and for the terminal the program `script`.
//
//   node scripts/pages.js                  all of them
//   node scripts/pages.js <folder>      into another folder
//   node scripts/pages.js <folder> <n>  only those whose name contains it
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { Client, isolatedEnvironment } from "../examples/client.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const [into = join(root, "docs/pictures"), only = ""] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), "pi-session-pages-"));
try {
  const outfile = join(home, "pages.mjs");
  const contents = 'export { takePictures } from "./scripts/pages.ts";';
  await build({ stdin: { contents, resolveDir: root }, bundle: true, format: "esm", platform: "node", outfile });
  const { takePictures } = await import(pathToFileURL(outfile).href);
  const serve = (args, options) => new Client(args, options);
  const places = { root, home, into: resolve(into), only, serve, env: isolatedEnvironment(home) };
  for (const { name, bytes } of await takePictures(places)) console.log(`${name} ${(bytes / 1000).toFixed(0)} kB`);
} finally {
  rmSync(home, { recursive: true, force: true });
}
