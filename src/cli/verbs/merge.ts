import { UsageError } from "../options.ts";
import { count, inert, inertLines } from "../terminal/text.ts";
import { type Asking, defineVerb, open } from "../verb.ts";
import { otherNamed } from "./compare.ts";

export default defineVerb({
  name: "merge",
  meaning: "bring what another branch found to the leaf, as one entry",
  operands: ["<session>", "<entry>"],
  flags: {
    "--summary": { value: "text", meaning: "what it found, as the model is to read it; - reads it from stdin" },
    "--prepare": { meaning: "print the branch as text for whoever writes the summary, and change nothing" },
    "--from": { value: "session", meaning: "the entry is of this session: a fork of the first, or its original" },
  },
  more:
    "The entry, where the branch ends, is an id as tree prints it, a beginning of one of at least 4 characters, or a " +
    "label; with --from also leaf. The new entry says which branch it tells of. A branch is merged once.\n" +
    "  pi-session-server merge 01991f6e d4e5 --prepare | summarise | pi-session-server merge 01991f6e d4e5 --summary -",
  async run(asking, { operands: [session, from], flags }) {
    const summary = flags.get("--summary");
    const prepares = flags.has("--prepare");
    if (prepares === (summary !== undefined))
      throw new UsageError("merge takes either --summary with the text, or --prepare, which prints what to summarise.");
    const other = flags.get("--from");
    if (prepares) return prepared(asking, session, from, other);
    const text = summary === "-" ? (await asking.readInput()).trim() : (summary ?? "");
    if (text.trim() === "") throw new UsageError("The summary is empty. --prepare prints what to summarise.");
    await open(asking, session);
    const branch = other === undefined ? { from } : { from, ...(await otherNamed(asking, other)) };
    return asking.ask("merge_branch", { ...branch, summary: text });
  },
  print(result, _given, { isTerminal }) {
    if ("conversationText" in result)
      return isTerminal ? inertLines(result.conversationText) : [result.conversationText];
    const { entryId, fromId, entryCount } = result;
    const what = count(entryCount, "entry", "entries");
    return [`The summary of ${what} up to ${inert(fromId)} is ${inert(entryId)}, the new leaf.`];
  },
});

/** Returns what a summariser needs of a branch. */
async function prepared(asking: Asking, session: string, from: string, other: string | undefined) {
  await open(asking, session);
  if (other === undefined) return asking.ask("prepare_branch_summary", { fromId: from });
  const of = await otherNamed(asking, other);
  const { commonAncestorId, b } = await asking.ask("compare_branches", { ...of, b: from, limit: 0 });
  await open(asking, other);
  return asking.ask("prepare_branch_summary", { fromId: b.entryId ?? undefined, targetId: commonAncestorId });
}
