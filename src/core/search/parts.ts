/** Parts of a session that a search looks at. */

import type { SearchPart, SearchRequest } from "../ports/catalog.ts";

const RESULTS: readonly SearchPart[] = ["toolResult", "bashExecution"];

/** Returns the parts that a request is about: those that it names, or else those that can match its filters. */
export function getSearchParts({
  parts,
  role,
  toolResults,
  tools,
  file,
  failed,
}: SearchRequest): readonly SearchPart[] {
  const usual: readonly SearchPart[] =
    failed === true
      ? RESULTS
      : file !== undefined
        ? ["toolCall"]
        : tools
          ? ["toolCall", ...RESULTS]
          : ["user", "assistant"];
  if (!parts && role !== undefined && file === undefined && !tools) return [role as SearchPart];
  return [...new Set([...(parts ?? usual), ...(toolResults ? RESULTS : [])])];
}

/** Returns whether a request finds something without words. */
export function hasFilter({ tools, file, failed }: SearchRequest): boolean {
  return tools !== undefined || file !== undefined || failed === true;
}

/** Returns a tool's name in the form for comparisons: agents write `Bash` and `bash`. */
export function toToolKey(name: string): string {
  return name.slice(0, LONGEST_NAME).toLowerCase();
}

/** Characters of a tool's name that are compared. */
const LONGEST_NAME = 200;
