/** Converts a prompt of an editor to a message of Pi. */

import { INVALID_PARAMS } from "../../../core/failure.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { PromptBlock } from "../acp/agent.ts";
import { AcpError } from "../acp/errors.ts";

/** The params of Pi's `prompt`. */
interface PiPrompt extends LooseMembers {
  readonly message: string;
  readonly images?: readonly object[];
}

/** Returns the params of Pi's `prompt`. Throws INVALID_PARAMS for blocks that Pi does not take. */
export function toPiPrompt(blocks: readonly PromptBlock[]): PiPrompt {
  const images: object[] = [];
  const attached: string[] = [];
  const words = blocks.map((block) => {
    const { type, text, data, mimeType, uri, name } = block;
    if (type === "text") return toStored(text);
    if (type === "image" && typeof data === "string" && typeof mimeType === "string") {
      images.push({ type, data, mimeType });
      return "";
    }
    if (type === "resource_link") return toReference(toStored(uri), toStored(name));
    const resource = toMembers(block.resource);
    if (type === "resource" && typeof resource.text === "string") {
      const place = toReference(toStored(resource.uri), "");
      attached.push(`\n\n<file path=${JSON.stringify(place)}>\n${resource.text}\n</file>`);
      return place;
    }
    throw new AcpError(
      INVALID_PARAMS,
      `Pi takes text, pictures with their data, links and texts of files; not ${String(type)}.`,
    );
  });
  const message = words.join("") + attached.join("");
  if (message.trim() === "" && images.length === 0)
    throw new AcpError(INVALID_PARAMS, "The prompt is empty. Write something, and send it again.");
  return images.length === 0 ? { message } : { message, images };
}

/** Returns the text for a link: a file by its path. */
function toReference(uri: string, name: string): string {
  if (!uri.startsWith("file://")) return name === "" || name === uri ? uri : `[${name}](${uri})`;
  try {
    const { pathname, hash } = new URL(uri);
    return decodeURIComponent(pathname) + hash;
  } catch {
    return uri;
  }
}
