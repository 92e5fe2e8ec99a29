import { absolute } from "../../core/store/paths.ts";
import { inert } from "./text.ts";
import { named, type Verb } from "./verb.ts";

export default {
  name: "relocate",
  meaning: "give a session another working directory",
  operands: ["<session>", "<dir>"],
  flags: {},
  more: "The session is named by its path or its full id. Its file goes to the folder of that directory.",
  run: ({ ask, cwd }, { operands: [session, dir] }) =>
    ask("relocate_session", { ...named(session), cwd: absolute(dir, cwd) }),
  print: ({ movedTo, keptAt }) => [`It is now ${inert(movedTo)}.`, `The original is ${inert(keptAt)}.`],
} satisfies Verb;
