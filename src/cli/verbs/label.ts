import { runWithEntry } from "../entries.ts";
import { UsageError } from "../options.ts";
import { show } from "../terminal/text.ts";
import { defineVerb, openChangedSession } from "../verb.ts";

export default defineVerb({
  name: "label",
  meaning: "give an entry a label, or take it away",
  operands: ["<session>", "<entry>", "[label...]"],
  onInterrupt: "The entry has its old label or the new one; tree --labels shows which.",
  more: `The entry is named by its id, 4 or more characters of it, its label, or leaf. Without a label, its label is taken away.
  pi-session-server label 01991f6e leaf it works`,
  async run(asking, { operands: [session, entry, ...words] }) {
    await openChangedSession(asking, session);
    const label = words.join(" ").trim();
    return runWithEntry(asking, entry, async (entryId) => {
      const { label: before } = await asking.ask("get_entry", { entryId, images: "reference" });
      if (label === "" && before === null) throw new UsageError(show`${entryId} has no label. Put one after it.`);
      return asking.ask("set_label", { entryId, label: label === "" ? null : label });
    });
  },
  print: (_result, { operands: [, entry, ...words] }) => [
    words.join("").trim() === ""
      ? show`The label of ${entry} is taken away; undo brings it back.`
      : show`${entry} is labelled ${words.join(" ").trim()}.`,
  ],
});
