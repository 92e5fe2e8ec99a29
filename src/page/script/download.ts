/** The session's JSONL, which the page holds packed: unpacked part by part, and given as a file. */

import { formatSize } from "../amounts.ts";
import { create, makeButton } from "./elements.ts";

interface PackedSession {
  readonly name: string;
  readonly whole: number;
  readonly packed: number;
}

/** Puts a button for it into the head, where the page holds it. */
export function offerDownload(say: (words: string) => void): void {
  const about = document.getElementById("page.packed")?.dataset.about;
  const facts = document.querySelector(".facts");
  if (about === undefined || !facts || typeof DecompressionStream === "undefined") return;
  const session = JSON.parse(about) as PackedSession;
  const save = makeButton("Download", "small", () => void download(session, say), session.name);
  const sizes = create(
    "span",
    { class: "dim" },
    ` ${formatSize(session.whole)}, ${formatSize(session.packed)} in this page`,
  );
  facts.append(create("div", {}, create("dt", {}, "JSONL"), create("dd", {}, save, sizes)));
}

async function download({ name }: PackedSession, say: (words: string) => void): Promise<void> {
  say("Unpacking…");
  try {
    const url = URL.createObjectURL(await unpacked());
    const link = create("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    say(`Saved as ${name}`);
  } catch {
    say("The session in this page could not be unpacked. Export it as jsonl instead.");
  }
}

async function unpacked(): Promise<Blob> {
  const parts: Blob[] = [];
  for (const { textContent } of document.querySelectorAll("script.packed")) {
    const text = atob(textContent ?? "");
    const bytes = Uint8Array.from(text, (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    parts.push(await new Response(stream).blob());
  }
  return new Blob(parts, { type: "application/jsonl" });
}
