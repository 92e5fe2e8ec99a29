/** The texts in the sources of the program, as a person may read them. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const SRC = fileURLToPath(new URL("../../src", import.meta.url));

/** In place of a value that a text is made with. */
export const VALUE = "VALUE";

export interface SourceText {
  readonly file: string;
  readonly text: string;
}

/** Returns the texts of all files in a folder of the sources that contain a word. Joined ones are one text. */
export function readTexts(folder: string, word: string): SourceText[] {
  const files = readdirSync(join(SRC, folder), { recursive: true, encoding: "utf8" });
  return files
    .filter((file) => file.endsWith(".ts"))
    .flatMap((name) => {
      const file = join(folder, name);
      const source = readFileSync(join(SRC, file), "utf8");
      return source.includes(word) ? textsIn(source).map((text) => ({ file, text })) : [];
    })
    .filter(({ text }) => text.includes(word));
}

/** Parts of a source file: comments, regular expressions after what no value can follow, and texts. */
const PARTS =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|(?<=[(,=:[!&|?{};\n]\s*)\/(?![*/])(?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/|"(?:[^"\\\n]|\\.)*"|\+\s|`|[{}]|[^\s"`{}+/]+|[^\s]/g;

/** Returns the texts in a source file; those that a sign joins are one. */
export function textsIn(source: string): string[] {
  const texts: string[] = [];
  let [joined, hasSign]: [string, boolean] = ["", true];
  const add = (text: string): void => {
    if (!hasSign && joined !== "") texts.push(joined);
    joined = hasSign ? `${joined}${text}` : text;
    hasSign = false;
  };
  const end = (): void => {
    if (joined !== "") texts.push(joined);
    [joined, hasSign] = ["", true];
  };
  /** Reads code up to the brace that closes it. */
  const readCode = (pattern: RegExp): void => {
    let depth = 0;
    for (let found = pattern.exec(source); found !== null; found = pattern.exec(source)) {
      const [part] = found;
      if (part.startsWith("/") && part.length > 1) continue;
      if (part.startsWith('"')) add(unescaped(part.slice(1, -1)));
      else if (part === "`") add(readTemplate(pattern));
      else if (part.startsWith("+")) hasSign = joined !== "";
      else end();
      if (part === "{") depth++;
      if (part === "}" && --depth < 0) return;
    }
    end();
  };
  /** Reads a template up to its end; the texts in its values are texts of their own. */
  const readTemplate = (pattern: RegExp): string => {
    let text = "";
    for (let at = pattern.lastIndex; at < source.length; at++) {
      if (source[at] === "\\") text += source.slice(at, ++at + 1);
      else if (source[at] === "`") {
        pattern.lastIndex = at + 1;
        return unescaped(text);
      } else if (source.startsWith("${", at)) {
        const outer: [string, boolean] = [joined, hasSign];
        [joined, hasSign] = ["", true];
        pattern.lastIndex = at + 2;
        readCode(pattern);
        end();
        [joined, hasSign] = outer;
        at = pattern.lastIndex - 1;
        text += VALUE;
      } else text += source[at];
    }
    return text;
  };
  readCode(new RegExp(PARTS));
  return texts;
}

function unescaped(text: string): string {
  return text.replace(/\\(u[0-9a-f]{4}|.)/g, (_, of: string) =>
    of === "n" ? "\n" : of[0] === "u" ? String.fromCharCode(Number.parseInt(of.slice(1), 16)) : of,
  );
}
