/** The session itself within its page: its JSONL as gzip in base64, which the page's script unpacks for download. */

import { gzipSync } from "node:zlib";
import { escapeHtml } from "./escape.ts";

/** Bytes that are packed together; browsers unpack gzip of one member only. */
const PART = 1 << 20;

/** Yields an element for each part, and one that describes their whole: inert data, which no browser runs. */
export function* renderPacked(bytes: Iterable<Uint8Array>, name: string): Generator<string> {
  let waiting: Uint8Array[] = [];
  let size = 0;
  let whole = 0;
  let packed = 0;
  const pack = (): string => {
    const text = gzipSync(Buffer.concat(waiting)).toString("base64");
    whole += size;
    packed += text.length;
    waiting = [];
    size = 0;
    return `<script type="application/gzip" class="packed">${text}</script>\n`;
  };
  for (const piece of bytes)
    for (let from = 0; from < piece.length; ) {
      const part = piece.subarray(from, from + PART - size);
      // The source of the pieces may use their memory again.
      waiting.push(Uint8Array.from(part));
      size += part.length;
      from += part.length;
      if (size === PART) yield pack();
    }
  if (size > 0) yield pack();
  const about = escapeHtml(JSON.stringify({ name, whole, packed }));
  yield `<div id="page.packed" hidden data-about="${about}"></div>\n`;
}
