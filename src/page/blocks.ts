/** Content blocks that are drawn the same everywhere. */

import { LeftOut } from "../core/export/pictures.ts";
import { type LooseMembers, toMembers } from "../core/format/loose.ts";
import { toAmount, toShownText } from "../core/format/message.ts";
import { formatAmount, formatCost, formatSize } from "./amounts.ts";
import { escapeHtml } from "./escape.ts";

/** Beginning of the base64 text of a picture, by type. */
const BEGINNINGS: Readonly<Record<string, string>> = {
  "image/png": "iVBORw0KGgo",
  "image/jpeg": "/9j/",
  "image/gif": "R0lGOD",
  "image/webp": "UklGR",
};

/** Returns a picture that is one of a known type; of anything else, that it was there. */
export function renderImage({ mimeType, data }: LooseMembers): string {
  const type = toShownText(mimeType).toLowerCase();
  if (data instanceof LeftOut) {
    const what = `image ${escapeHtml(type.slice(0, 100))}, ${formatSize((data.length * 3) / 4)}`;
    return `<p class="nolink">[${what}: left out, because browsers do not open a page with all pictures of this session]</p>`;
  }
  const bytes = typeof data === "string" ? data.replace(/\s+/g, "") : "";
  const size = bytes === "" ? "no data" : formatSize((bytes.length * 3) / 4);
  const isPicture = Object.hasOwn(BEGINNINGS, type) && bytes.startsWith(BEGINNINGS[type]) && isBase64(bytes);
  if (!isPicture) return `<p class="nolink">[image ${escapeHtml(type.slice(0, 100))}, ${size}: not shown]</p>`;
  const description = `Picture, ${type.slice(6)}, ${size}`;
  return `<img alt="${description}" loading="lazy" decoding="async" src="data:${type};base64,${bytes}">`;
}

function isBase64(text: string): boolean {
  const filling = text.indexOf("=");
  return !/[^A-Za-z0-9+/=]/.test(text) && (filling < 0 || filling >= text.length - 2);
}

export function toIndentedJson(value: unknown): string {
  try {
    return JSON.stringify(value, null, 2) ?? "";
  } catch {
    // Nested too deep for JSON.stringify.
    return toShownText(value);
  }
}

/** Returns what an answer used, in a few words each: tokens in and out, and the cost; none where nothing is known. */
export function describeUsage(usage: unknown): string[] {
  const { input, output, cacheRead, cacheWrite, cost } = toMembers(usage);
  const tokens = [input, cacheRead, cacheWrite].reduce<number>((sum, amount) => sum + toAmount(amount), 0);
  const total = toAmount(toMembers(cost).total);
  if (tokens + toAmount(output) === 0) return [];
  return [
    `${formatAmount(tokens)} in`,
    `${formatAmount(toAmount(output))} out`,
    ...(total === 0 ? [] : [formatCost(total)]),
  ];
}
