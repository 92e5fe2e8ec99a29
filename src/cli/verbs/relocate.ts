import { absolute } from "../../storage/fs/paths.ts";
import { inert } from "../terminal/text.ts";
import { named, type Verb } from "../verb.ts";

export default {
  name: "relocate",
  meaning: "give a session another working directory",
  operands: ["<session>", "<dir>"],
  flags: { "--allow-missing": { meaning: "accept a directory that does not exist, such as one on another machine" } },
  more: "Name the session by its path or its full id. Its file goes to the folder of that directory.",
  run({ ask, cwd }, { operands: [session, dir], flags }) {
    const allowMissing = flags.has("--allow-missing") ? true : undefined;
    return ask("relocate_session", { ...named(session), cwd: absolute(dir, cwd), allowMissing });
  },
  print: ({ movedTo, keptAt }) => [`It is now at ${inert(movedTo)}.`, `The original is ${inert(keptAt)}.`],
} satisfies Verb;
