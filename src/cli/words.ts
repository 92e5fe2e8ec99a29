/** Cuts a command that is given as one text into its words. */

import { UsageError } from "./usage-error.ts";

/**
 * Returns the words of a command as a shell would cut them: at spaces, but for those in quotes or after a backslash.
 * Nothing else means anything. Throws UsageError.
 */
export function splitShellWords(command: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote = "";
  for (let i = 0; i < command.length; i++) {
    const c = command[i];
    const isEscape = c === "\\" && quote !== "'" && /[\s"'\\]/.test(command[i + 1] ?? "");
    if (isEscape) word = (word ?? "") + command[++i];
    else if (quote !== "" && c === quote) quote = "";
    else if (quote === "" && (c === '"' || c === "'")) {
      quote = c;
      word ??= "";
    } else if (quote === "" && /\s/.test(c)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + c;
  }
  if (quote !== "") throw new UsageError(`The command ${command} has a ${quote} without another one.`);
  if (word !== undefined) words.push(word);
  return words;
}
