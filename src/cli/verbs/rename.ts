import { escapeLine } from "../terminal/text.ts";
import { askAbout, defineVerb } from "../verb.ts";

export default defineVerb({
  name: "rename",
  meaning: "give a session a display name",
  operands: ["<session>", "<name...>"],
  more: "Of several sessions with one name, the id means one; list --cwd shows those of this directory, with their ids.",
  onInterrupt: "The session has its old name or the new one; list shows which.",
  run: askAbout("set_session_name", ({ operands }) => ({ name: operands.slice(1).join(" ") })),
  print: (_result, { operands }) => [`The name is now ${escapeLine(operands.slice(1).join(" "))}.`],
});
