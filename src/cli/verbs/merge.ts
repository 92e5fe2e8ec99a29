import { UsageError } from "../options.ts";
import { count, escapeLines, show } from "../terminal/text.ts";
import { defineVerb, openChangedSession, type VerbContext } from "../verb.ts";
import { findOtherSession } from "./compare.ts";

export default defineVerb({
  name: "merge",
  meaning: "add what another branch found to the leaf, as one entry",
  operands: ["<session>", "<entry>"],
  flags: {
    "--summary": { value: "text", meaning: "store this text as what the branch found; - reads it from stdin" },
    "--prepare": { meaning: "print the branch as text to be summarised, and change nothing" },
    "--from": { value: "session", meaning: "take the entry from this session: a fork of the first, or its original" },
  },
  more:
    "The entry is the end of the branch: its id, 4 or more characters of it, a label or, with --from, leaf. It refuses a branch that was merged before, unless the branch has grown since.\n" +
    "  pi-session-server merge 01991f6e d4e5 --prepare >branch.txt\n" +
    "  summarise <branch.txt | pi-session-server merge 01991f6e d4e5 --summary -",
  async run(asking, { operands: [session, from], flags }) {
    const summary = flags.get("--summary");
    const prepares = flags.has("--prepare");
    if (prepares === (summary !== undefined))
      throw new UsageError("merge takes either --summary with the text, or --prepare, which prints what to summarise.");
    const other = flags.get("--from");
    if (prepares) {
      const material = await prepared(asking, session, from, other);
      if (material.conversationText === "") asking.say("The path to the leaf has all of that branch already.");
      return material;
    }
    const text = summary === "-" ? (await asking.readInput()).trim() : (summary ?? "");
    if (text.trim() === "") throw new UsageError("The summary is empty. --prepare prints what to summarise.");
    await openChangedSession(asking, session);
    const branch = other === undefined ? { from } : { from, ...(await findOtherSession(asking, other)) };
    return asking.ask("merge_branch", { ...branch, summary: text });
  },
  print(result, _given, { isTerminal }) {
    if ("conversationText" in result)
      return isTerminal ? escapeLines(result.conversationText) : [result.conversationText];
    const { entryId, fromId, entryCount } = result;
    const what = count(entryCount, "entry", "entries");
    return [show`The summary of ${what} up to ${fromId} is ${entryId}, the new leaf.`];
  },
});

/** Returns the material for a summary of a branch. */
async function prepared(asking: VerbContext, session: string, from: string, other: string | undefined) {
  await openChangedSession(asking, session);
  if (other === undefined) return asking.ask("prepare_branch_summary", { fromId: from });
  const of = await findOtherSession(asking, other);
  const { commonAncestorId, b } = await asking.ask("compare_branches", { ...of, b: from, limit: 0 });
  await openChangedSession(asking, other);
  return asking.ask("prepare_branch_summary", { fromId: b.entryId ?? undefined, targetId: commonAncestorId });
}
