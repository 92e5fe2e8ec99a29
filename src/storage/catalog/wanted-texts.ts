/** The texts that a search is about, besides its words: parts, roles, times, tools and files. */

import type { SearchPart, SearchRequest } from "../../core/ports/catalog.ts";
import { getPathEnds, hasFile, normalizeFileName } from "../../core/search/named-files.ts";
import { getSearchParts, toToolKey } from "../../core/search/parts.ts";
import {
  containsTerms,
  findBestLine,
  findFailureLine,
  fold,
  makeSnippet,
  type Query,
  type Sought,
} from "../../core/search/query.ts";
import { getTextKind, type IndexedText } from "./documents.ts";
import { toFileMark, toToolMark } from "./text-index.ts";
import type { TextKind } from "./text-table.ts";

/** Most tools that the index is asked for. With more, texts are read and searched: 100,000 took it minutes. */
const MOST_TOOLS = 64;

export class WantedTexts {
  /** Terms that a text of a ranked search has at least. The index finds those with any, and ranks them. */
  leastTerms = 0;
  private readonly request: SearchRequest;
  private readonly query: Query;
  private readonly parts: ReadonlySet<SearchPart>;
  /** Keys of the tools that are asked for; undefined: any. */
  private readonly tools: ReadonlySet<string> | undefined;
  /** The file that is asked for, as {@link normalizeFileName} returns it. */
  private readonly file: string | undefined;
  /** Terms that are looked for in a text to show the place: those of the query or, without them, the file's name. */
  private readonly placed: Query;

  constructor(request: SearchRequest, query: Query) {
    this.request = request;
    this.query = query;
    this.parts = new Set(getSearchParts(request));
    this.tools = request.tools && new Set(request.tools.map(toToolKey));
    this.file = request.file === undefined ? undefined : (normalizeFileName(request.file, null) ?? "");
    this.placed = query.length > 0 || !this.file ? query : [fold(getPathEnds(this.file)[0])];
  }

  get kinds(): readonly TextKind[] {
    return [...new Set(Array.from(this.parts, getTextKind))];
  }

  /** Returns the kinds with the role that each is limited to; undefined: several, or any. */
  get rolesOfKinds(): Map<TextKind, string | undefined> {
    const limits = new Map<TextKind, string | undefined>();
    for (const kind of this.kinds) {
      const parts = [...this.parts].filter((part) => getTextKind(part) === kind);
      limits.set(kind, this.request.role ?? (kind === "calls" || parts.length > 1 ? undefined : parts[0]));
    }
    return limits;
  }

  /** Returns whether a text is of the parts, the role and the time. */
  wants({ kind, role, time }: Pick<IndexedText, "kind" | "role" | "time">): boolean {
    const { since, until, role: asked } = this.request;
    if (asked !== undefined && role !== asked) return false;
    if (since !== undefined && !((time ?? Number.NaN) >= since)) return false;
    if (until !== undefined && !((time ?? Number.NaN) <= until)) return false;
    if (kind !== "calls") return this.parts.has(role as SearchPart);
    // The output of a command that the user ran is searched together with the command.
    return this.parts.has("toolCall") && !(role === "bashExecution" && this.parts.has(role));
  }

  /**
   * Returns whether a text is of the tools, names the file, is of a failure if these are wanted and, folded, has the terms,
   * or enough of them if it is ranked.
   */
  fits({ tool, files, isFailed }: IndexedText, folded: string): boolean {
    if (this.request.failed === true && !isFailed) return false;
    if (this.tools && (tool === undefined || !this.tools.has(toToolKey(tool)))) return false;
    if (this.file !== undefined && !hasFile(files, this.file)) return false;
    if (this.request.ranked !== true) return containsTerms(folded, this.query);
    const { leastTerms } = this;
    return leastTerms === 0 || this.query.filter((term) => folded.includes(term)).length >= leastTerms;
  }

  /** The marks of the tools and the file, for the index; nothing when any will do. */
  get marks(): Sought {
    const tools = this.tools && this.tools.size <= MOST_TOOLS ? this.request.tools : undefined;
    return [
      ...(tools ? [[...new Set(tools.map(toToolMark))]] : []),
      ...(this.file === undefined ? [] : [[toFileMark(getPathEnds(this.file).at(-1) ?? "")]]),
    ];
  }

  /** Returns the members of a hit that describe its text. */
  shown({ kind, role, text, tool, time: at }: IndexedText, folded: string) {
    const part = kind === "calls" ? ("toolCall" as const) : (role as SearchPart);
    return {
      role,
      part,
      tool,
      at,
      snippet: makeSnippet(text, folded, this.placed),
      line:
        this.request.failed === true && role === "toolResult" && this.placed.length === 0
          ? findFailureLine(text)
          : findBestLine(text, folded, this.placed),
    };
  }
}
