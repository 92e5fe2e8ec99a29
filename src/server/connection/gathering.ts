/** Puts the pieces of a message together: in memory, or in a file where they are too many. */

import { Failure } from "../../core/failure.ts";
import type { Spool } from "../../core/ports/spool.ts";
import type { Call } from "./call.ts";
import type { Pieces } from "./dialect.ts";
import { chain, type OutgoingMessage, type Output, releaseSpooled } from "./output.ts";

/** The space for a message. */
interface Bounds {
  /** The call being answered; an event has none. */
  readonly call?: Call;
  /** Maximum bytes for the host; others of the same batch have used `usedBytes`. */
  readonly limit: number;
  readonly usedBytes: number;
  /** Bytes above which a message goes to a file. */
  readonly most: number;
  /** True if a message that is in memory already stays there at any size. */
  readonly mayStayInMemory: boolean;
}

/**
 * Returns the pieces of a message; those of one over `most` bytes go to a file. Throws message_too_large if it is
 * larger than the host allows, storage_full and storage_failed if the file cannot be written, and any error from making
 * the pieces.
 */
export function gather(
  made: Iterable<string | Uint8Array>,
  bounds: Bounds,
  output: Output,
  spool: Spool,
): OutgoingMessage {
  const { call, limit, usedBytes, most, mayStayInMemory } = bounds;
  const requireFit = (size: number): void => {
    if (size + usedBytes <= limit) return;
    throw new Failure("message_too_large", tooLarge(call, limit), { size: size + usedBytes, limit });
  };
  const pieces: Pieces = [];
  let message: OutgoingMessage = pieces;
  if (mayStayInMemory && Array.isArray(made)) message = made;
  else {
    const rest = made[Symbol.iterator]();
    let bytes = 0;
    for (let next = rest.next(); !next.done; next = rest.next()) {
      pieces.push(next.value);
      bytes += next.value.length;
      if (bytes <= most && bytes <= limit) continue;
      const all = chain(pieces, rest);
      if (bytes > limit) requireFit(output.sizeOf(all));
      message = [spool.store(output.inFrame(all))];
      break;
    }
  }
  if (limit === Number.POSITIVE_INFINITY) return message;
  try {
    requireFit(output.sizeOf(message));
  } catch (error) {
    releaseSpooled(message);
    throw error;
  }
  return message;
}

/** Returns the sentence about a reply that is over the host's limit. */
function tooLarge(call: Call | undefined, limit: number): string {
  const { name = "", params: { shape = {} } = {} } = call?.command ?? {};
  const bare = "images" in shape ? 'Ask for it without pictures (images: "omit")' : undefined;
  const less = "limit" in shape ? "Ask for less with limit and cursor" : undefined;
  const none = "messages" in shape ? "Ask for it without messages (messages: false)" : undefined;
  const ways = [bare, less, none].filter(Boolean).join(". ");
  const how = ways === "" ? "It comes whole: raise the limit" : `${ways}, or raise it`;
  return `The reply to ${name} is over your maxReplyBytes of ${limit}. ${how} in initialize.`;
}
