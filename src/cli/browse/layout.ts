/** The parts of the screen and their sizes. */

import type { BrowseState } from "./state.ts";

interface Layout {
  /** Columns of the list or the tree. */
  readonly listColumns: number;
  /** Lines of the list, or of the tree, without the lines around it. */
  readonly listHeight: number;
  readonly treeHeight: number;
  readonly hasPreview: boolean;
  readonly isWide: boolean;
  /** Columns and lines of the preview; 0 without one. */
  readonly previewColumns: number;
  readonly previewHeight: number;
}

/** Least columns for a preview next to the list, and least lines for one below it. */
const WIDE = 110;
const HIGH = 20;
/** Lines of the screen that are neither list nor preview: title, heads of the columns, the last line. */
const AROUND_LIST = 3;
const AROUND_TREE = 2;
/** Columns between the list and the preview. */
export const BETWEEN = 3;
/** Lines without which a preview shows nothing. */
const LEAST = 3;

export function computeLayout({ rows, columns, preview }: Pick<BrowseState, "rows" | "columns" | "preview">): Layout {
  const isSideBySide = columns >= WIDE;
  const body = Math.max(1, rows - AROUND_LIST);
  const below = Math.max(LEAST, Math.floor(body / 2));
  const fits = isSideBySide ? body >= LEAST : body >= below + LEAST;
  const hasPreview = fits && (preview.isWanted ?? (isSideBySide || rows >= HIGH));
  const listColumns = hasPreview && isSideBySide ? Math.max(60, Math.floor((columns - BETWEEN) * 0.5)) : columns;
  // Below the list, a line parts them.
  const taken = hasPreview && !isSideBySide ? below : 0;
  return {
    listColumns,
    listHeight: Math.max(1, rows - AROUND_LIST - taken),
    treeHeight: Math.max(1, rows - AROUND_TREE - taken),
    hasPreview,
    isWide: isSideBySide,
    previewColumns: !hasPreview ? 0 : isSideBySide ? columns - listColumns - BETWEEN : columns,
    previewHeight: !hasPreview ? 0 : isSideBySide ? rows - 2 : below - 1,
  };
}
