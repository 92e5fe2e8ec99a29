import { inert } from "../terminal/text.ts";
import { open, type Verb } from "../verb.ts";

export default {
  name: "rename",
  meaning: "give a session a display name",
  operands: ["<session>", "<name...>"],
  flags: {},
  async run(asking, { operands }) {
    const [session, ...words] = operands;
    await open(asking, session);
    return asking.ask("set_session_name", { name: words.join(" ") });
  },
  print: (_result, { operands }) => [`The name is now ${inert(operands.slice(1).join(" "))}.`],
} satisfies Verb;
