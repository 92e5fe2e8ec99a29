import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { findNamedSession } from "../sessions.ts";
import { formatBackupName, shortenId, shortenPath } from "../terminal/text.ts";
import { defineVerb } from "../verb.ts";

export default defineVerb({
  name: "relocate",
  meaning: "give a session another working directory",
  operands: ["<session>", "<dir>"],
  flags: { "--allow-missing": { meaning: "accept a directory that does not exist here" } },
  more: "Its file moves to the folder of that directory. The original stays as a backup.",
  onInterrupt: "The session is at its old place or at the new one, never lost; the same command goes on.",
  async run(asking, { operands: [session, dir], flags }) {
    const { params } = await findNamedSession(asking, session, "listed");
    const allowMissing = flags.has("--allow-missing") ? true : undefined;
    return asking.ask("relocate_session", { ...params, cwd: toAbsolutePath(dir, asking.cwd), allowMissing });
  },
  print: ({ sessionId, movedTo, keptAt }, _given, { home }) => [
    `${shortenId(sessionId)} is now at ${shortenPath(movedTo, home)}.`,
    ...(keptAt === null ? [] : [`The original is kept next to it (${formatBackupName(keptAt)}).`]),
  ],
});
