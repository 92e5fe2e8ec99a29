import { absolute } from "../../storage/fs/paths.ts";
import { inert } from "../terminal/text.ts";
import { CommandFailed, named, type Result, type Verb } from "../verb.ts";

export default {
  name: "relocate",
  meaning: "give a session another working directory",
  operands: ["<session>", "<dir>"],
  flags: { "--allow-missing": { meaning: "the directory need not exist, as one on another machine" } },
  more: "The session is named by its path or its full id. Its file goes to the folder of that directory.",
  async run({ ask, cwd }, { operands: [session, dir], flags }) {
    const allowMissing = flags.has("--allow-missing") ? true : undefined;
    try {
      return await ask("relocate_session", { ...named(session), cwd: absolute(dir, cwd), allowMissing });
    } catch (error) {
      throw error instanceof CommandFailed ? new CommandFailed(inOurWords(error.error)) : error;
    }
  },
  print: ({ movedTo, keptAt }) => [`It is now ${inert(movedTo)}.`, `The original is ${inert(keptAt)}.`],
} satisfies Verb;

/** Returns an error with the option of the command line in place of the param. */
function inOurWords(error: Result): Result {
  return { ...error, message: error.message.replace("; allowMissing takes", "; --allow-missing takes") };
}
