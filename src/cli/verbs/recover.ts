import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { count, cutTo, escapeLine, show } from "../terminal/text.ts";
import { defineVerb, openNamedSession } from "../verb.ts";

export default defineVerb({
  name: "recover",
  meaning: "show entries that a fleet refused, and make a branch of them",
  operands: ["[file]", "[entry...]"],
  more: "Such entries were written while another machine had the session. Without a file, it lists them. With one, it appends its entries to their session as a branch; the leaf stays. The file is then no longer listed, unless it has damaged lines, or lines of entries that the session has with other bytes. It appends those only if you name their ids.",
  async run(asking, { operands: [file, ...edited] }) {
    const { kept } = await asking.ask("list_kept", {});
    if (file === undefined) return { kept };
    const keptAt = toAbsolutePath(file, asking.cwd);
    const known = kept.find((one) => one.keptAt === keptAt);
    if (known) await openNamedSession(asking, known.sessionId);
    const recovered = await asking.ask("recover_kept", { keptAt, edited: edited.length > 0 ? edited : undefined });
    // The repetition finds all of it there, and puts the file aside.
    if (recovered.entryIds.length > 0) await asking.ask("recover_kept", { keptAt });
    return { kept: undefined, sessionId: known?.sessionId, ...recovered };
  },
  *print(result, _given, { width }) {
    if (result.kept === undefined) {
      const { entryIds, renamed, edited, damagedLines, sessionId } = result;
      const last = entryIds.at(-1);
      if (last === undefined && edited.length > 0) yield show`Nothing was added to the session ${sessionId}.`;
      else if (last === undefined) yield show`The session ${sessionId} has all of it already.`;
      else
        yield show`${count(entryIds.length, "entry is", "entries are")} a branch of the session ${sessionId}, which ends with ${last}.`;
      for (const { from, to } of renamed)
        yield show`${from} is ${to} there, because others gave its id to another entry.`;
      for (const id of edited)
        yield show`${id} stays in the file: the session has an entry of this id with other bytes. Name it to add it, too.`;
      if (damagedLines > 0) yield `${count(damagedLines, "line is", "lines are")} damaged and left out.`;
      return;
    }
    const { kept } = result;
    if (kept.length === 0) yield "No refused entries are kept.";
    for (const { keptAt, sessionId: of, entryCount, damagedLines: damaged, since, text } of kept) {
      yield show`${keptAt}`;
      const lost = damaged > 0 ? `, ${count(damaged, "damaged line", "damaged lines")}` : "";
      const said = `${lost}${text === null ? "" : `: ${escapeLine(text)}`}`;
      yield cutTo(show`  ${count(entryCount, "entry", "entries")} of ${of}, kept ${since}${said}`, width);
    }
  },
});
