/** Writes docs/map.md: every file of the sources, and the first sentence of its first comment. */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, extname } from "node:path";

const PREFACE = `# Map of the sources

\`npm run docs\` writes this page: each file, and the first sentence of its first comment. Commands (\`src/handlers\`) and verbs
(\`src/cli/verbs\`) are not listed: each has a file of its name. [ARCHITECTURE.md](../ARCHITECTURE.md) says how they work together.
`;
const FOLDERS = ["src", "scripts", "bench"];
const UNLISTED = new Set(["src/handlers", "src/cli/verbs"]);
const ENDINGS = new Set([".ts", ".js", ".wat"]);

/** Returns the page for the sources in a folder. */
export function writeMap(root: string): string {
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(`${root}/${folder}`, { recursive: true, encoding: "utf8" }).map((name) => `${folder}/${name}`),
  ).filter((file) => ENDINGS.has(extname(file)) && !UNLISTED.has(dirname(file)));
  const folders = [...new Set(files.map((file) => dirname(file)))].sort();
  const sections = folders.map((folder) => {
    const rows = files.filter((file) => dirname(file) === folder).sort();
    return `## ${folder}\n\n${rows.map((file) => formatRow(file, readFileSync(`${root}/${file}`, "utf8"))).join("\n")}\n`;
  });
  return [PREFACE, ...sections].join("\n");
}

function formatRow(file: string, text: string): string {
  const sentence = getFirstSentence(text);
  return `- \`${file.slice(dirname(file).length + 1)}\`${sentence === "" ? "" : `: ${sentence}`}`;
}

/** Returns the first sentence of a comment at the beginning of a file, without its full stop; empty where there is none. */
function getFirstSentence(text: string): string {
  const [, block, lines] = /^(?:#!.*\n)?(?:\/\*\*([\s\S]*?)\*\/|((?:(?:\/\/|;;).*\n)+))/.exec(text) ?? [];
  const comment = (block ?? lines ?? "").replace(/^\s*(?:\*|\/\/|;;) ?/gm, "").replace(/\s+/g, " ");
  const [sentence] = /^.*?(?=\.(?: |$))/.exec(comment.trim()) ?? [comment.trim()];
  return sentence.replaceAll("<", "&lt;");
}
