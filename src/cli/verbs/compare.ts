import { numberAbove0 } from "../options.ts";
import { comparisonLines } from "../sides.ts";
import { type Asking, CommandFailed, named, open, type Result, type Verb } from "../verb.ts";

export default {
  name: "compare",
  meaning: "show where two branches part, and what each said, did and cost",
  operands: ["<session>", "<a>", "[b]"],
  serverOptions: ["--read-only"],
  flags: {
    "--with": { value: "session", meaning: "b is an entry of this session: a fork of the first, or its original" },
    "--limit": { value: "n", meaning: "what was said on each side, at most this many entries; 50 by default" },
    "--plain": { meaning: "one side under the other, whatever the width" },
  },
  more:
    "a and b are ids of entries as tree prints them, beginnings of ids of at least 4 characters, labels, or leaf.\n" +
    "  compare <session> <a> <b>       two branches of one session\n" +
    "  compare <session> <fork>        a session and a fork of it, from where they part\n" +
    "  compare <session> <a>           the leaf and another branch",
  async run(asking, { operands: [session, a, b], flags }) {
    await open(asking, session);
    const limit = numberAbove0(flags, "--limit");
    const other = flags.get("--with");
    if (other !== undefined) return asking.ask("compare_branches", { a, b, ...otherNamed(other), limit });
    return b === undefined ? compareWith(asking, a, limit) : asking.ask("compare_branches", { a, b, limit });
  },
  print: (result, { flags }, page) => comparisonLines(result, page, flags.has("--plain")),
} satisfies Verb;

/** Returns the params that name the other of two sessions. */
export function otherNamed(operand: string): { otherPath: string } | { otherId: string } {
  const where = named(operand);
  return "sessionPath" in where ? { otherPath: where.sessionPath } : { otherId: where.sessionId };
}

/** Failures of a name that is that of no session. */
const NO_SESSION = ["session_not_found", "invalid_id", "ambiguous_id"];

/** Compares with another session or, where no session is called so, with an entry of this one. */
async function compareWith({ ask }: Asking, operand: string, limit: number | undefined): Promise<Result> {
  try {
    return await ask("compare_branches", { ...otherNamed(operand), limit });
  } catch (error) {
    if (!(error instanceof CommandFailed && NO_SESSION.includes(error.error.data?.name))) throw error;
    return ask("compare_branches", { a: "leaf", b: operand, limit });
  }
}
