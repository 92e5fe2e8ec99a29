import type { Commands } from "../../client/protocol.ts";
import { getIdInPath } from "../../core/search/listing.ts";
import { exists } from "../../storage/fs/disk.ts";
import { formatComparison } from "../comparison-view.ts";
import { parsePositive, UsageError } from "../options.ts";
import { findNamedSession } from "../sessions.ts";
import { CommandFailed, defineVerb, openNamedSession, toSessionParams, type VerbContext } from "../verb.ts";

export default defineVerb({
  name: "compare",
  meaning: "show where two branches part, and what each said, did and cost",
  operands: ["<session>", "[a]", "[b]"],
  serverOptions: ["--read-only"],
  flags: {
    "--with": { value: "session", meaning: "take b from this session: a fork of the first, or its original" },
    "--limit": { value: "n", meaning: "print at most this many entries of each side; 50 by default" },
  },
  more:
    "a and b are ids of entries, beginnings of ids of at least 4 characters, labels, or leaf.\n" +
    "  compare <session> <a> <b>   two branches of one session\n" +
    "  compare <fork>              a fork and its original, from where they part\n" +
    "  compare <session> <fork>    a session and a fork of it, from where they part\n" +
    "  compare <session> <a>       the leaf and another branch",
  async run(asking, { operands: [session, a, b], flags }) {
    await openNamedSession(asking, session);
    const limit = parsePositive(flags, "--limit");
    const other = flags.get("--with");
    if (other !== undefined)
      return asking.ask("compare_branches", { a, b, ...(await findOtherSession(asking, other)), limit });
    if (a === undefined) return asking.ask("compare_branches", { ...(await findOriginal(asking)), limit });
    return b === undefined ? compareWith(asking, a, limit) : asking.ask("compare_branches", { a, b, limit });
  },
  print: (result, _given, page) => formatComparison(result, page),
});

/** Returns the params that name the other of two sessions. Throws session_not_found, ambiguous_id, UsageError. */
export async function findOtherSession(asking: VerbContext, operand: string): Promise<{ otherPath: string }> {
  const { params, listed } = await findNamedSession(asking, operand, "both");
  return { otherPath: listed?.path ?? (params as { sessionPath: string }).sessionPath };
}

/** Returns the params that name the original of the open session. Throws UsageError if it is no fork. */
async function findOriginal({ ask, disk }: VerbContext): Promise<Commands["compare_branches"]["params"]> {
  const { parentSession } = await ask("get_state");
  if (parentSession === null) throw new UsageError("compare needs <a>: this session is no fork and has no original.");
  const id = getIdInPath(parentSession);
  return exists(disk, parentSession) || id === undefined ? { otherPath: parentSession } : { otherId: id };
}

/** Failures of a name that is that of no session, or of no entry. */
const NOT_NAMED = ["session_not_found", "invalid_id", "entry_not_found"];

function isNotNamed(error: unknown): boolean {
  const name = error instanceof CommandFailed ? error.error.data?.name : (error as Error).name;
  return NOT_NAMED.includes(name ?? "");
}

/** Compares with the session of such an id, or with an entry of this one, or with the session of such a name. */
async function compareWith(asking: VerbContext, operand: string, limit: number | undefined) {
  const compared = (params: Commands["compare_branches"]["params"]) =>
    asking.ask("compare_branches", { ...params, limit });
  const where = toSessionParams(operand);
  try {
    return await compared("sessionPath" in where ? { otherPath: where.sessionPath } : { otherId: where.sessionId });
  } catch (error) {
    if (!isNotNamed(error)) throw error;
  }
  try {
    return await compared({ a: "leaf", b: operand });
  } catch (error) {
    if (!isNotNamed(error)) throw error;
    const other = await findOtherSession(asking, operand).catch(() => {
      throw error;
    });
    return compared(other);
  }
}
