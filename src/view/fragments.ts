/** New entries of a session as the exported page draws them, one after the other. */

import { cutEntry } from "../core/export/cut.ts";
import { type ExportPage, type PageEntry, toAnchorName } from "../core/export/page.ts";
import { getToolCalls, toStored } from "../core/format/message.ts";
import { type Drawn, renderBranch } from "../page/main.ts";

/** An entry as it is stored. */
export type StoredEntry = Readonly<Record<string, unknown>> & { readonly id: string };

/** A stretch of the page: where it stands, if it is there already, and its HTML. */
interface Fragment {
  readonly anchor: string;
  readonly html: string;
}

export function getMessage({ type, message }: StoredEntry): Readonly<Record<string, unknown>> {
  return type === "message" && typeof message === "object" && message !== null ? (message as never) : {};
}

/** Returns the name of an entry on the page; ids that are too long for one are too long to be followed, too. */
function anchorOf(id: string): string {
  return toAnchorName(id) ?? "new.entry";
}

/** Draws what comes after an entry, as the page draws it: results stand with their calls. */
export class FragmentRenderer {
  private drawn: Drawn = { turns: 0, model: "", answering: false };
  /** The last answer with its results, and the state before it was drawn. */
  private answer: { readonly before: Drawn; readonly entries: StoredEntry[]; readonly open: Set<string> } | undefined;

  /** Takes entries that the page has already, the last of its path in their order; `turns` are those of all the path. */
  recall(entries: readonly StoredEntry[], turns: number): void {
    const asked = entries.filter((entry) => getMessage(entry).role === "user").length;
    this.drawn.turns = Math.max(0, turns - asked);
    for (const entry of entries) this.draw(entry);
  }

  draw(entry: StoredEntry): Fragment {
    const message = getMessage(entry);
    const { answer } = this;
    if (message.role === "toolResult" && answer?.open.delete(toStored(message.toolCallId))) {
      answer.entries.push(entry);
      return this.html(answer.entries, { ...answer.before });
    }
    const before = { ...this.drawn };
    if (message.role === "assistant") {
      const open = new Set(getToolCalls(message.content).map(({ id }) => id));
      this.answer = { before, entries: [entry], open };
    } else if (message.role === "user") this.answer = undefined;
    return this.html([entry], this.drawn);
  }

  private html(entries: readonly StoredEntry[], drawn: Drawn): Fragment {
    const branch = { entries: () => entries.map(shownEntry), folds: () => [] };
    return { anchor: anchorOf(entries[0].id), html: [...renderBranch(pageFor(), branch, drawn)].join("") };
  }
}

function shownEntry(body: StoredEntry, number: number): PageEntry {
  return { number, anchor: anchorOf(body.id), body: cutEntry(body), branchesHere: [] };
}

/** Returns as much of a page as entries need that are drawn by themselves: names of other entries are their ids. */
function pageFor(): ExportPage {
  const names: string[] = [];
  return {
    title: "",
    isNamed: false,
    branches: [],
    apart: { length: 0, entries: () => [] },
    head: () => {
      throw new TypeError("a stretch of a page has no head");
    },
    anchorOf: (position) => names[position],
    find(entryId) {
      const name = toAnchorName(entryId);
      return name === undefined ? -1 : names.push(name) - 1;
    },
  };
}
