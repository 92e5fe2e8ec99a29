// The script of pages as one text, which the build and the tests put in the place of src/page/script.ts.
import { build } from "esbuild";

/** Returns the contents of a module that has the script. */
export async function buildPageScript() {
  const { outputFiles } = await build({
    entryPoints: ["src/page/script/main.ts"],
    bundle: true,
    minify: true,
    format: "iife",
    target: ["chrome111", "firefox113", "safari16.4"],
    // Pages declare UTF-8, and stay right where a program ignores that.
    charset: "ascii",
    legalComments: "none",
    logLevel: "warning",
    write: false,
  });
  const text = outputFiles[0].text.trim();
  // Inside of an element of a page nothing may end that, or begin a comment.
  if (/<\/script|<!--|<script/i.test(text)) throw new Error("The page's script would end its element.");
  return `export const SCRIPT = ${JSON.stringify(text)};`;
}

const isPageScript = (id) => id.endsWith("/src/page/script.ts");

/** Gives pages their script where tests load the sources, as the build does. */
export const pageScript = {
  name: "the script of pages",
  load: (id) => (isPageScript(id) ? buildPageScript() : undefined),
  // The kept module would be that of earlier sources: its own text does not change when they do.
  configureVitest: ({ experimental_defineCacheKeyGenerator: defineKey }) =>
    defineKey(({ id }) => (isPageScript(id) ? false : undefined)),
};
