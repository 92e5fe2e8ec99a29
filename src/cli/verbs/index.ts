import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { UsageError } from "../options.ts";
import { count, show } from "../terminal/text.ts";
import type { Verb } from "../verb.ts";

export default {
  name: "index",
  meaning: "write the table of sessions to a SQLite file",
  operands: [],
  more:
    "The columns are those of pi_agent_rust's index, for scripts that read it; last_modified_ms is the modification time of the session file. " +
    "It replaces an existing index in one step, and refuses to replace any other file.",
  flags: { "--out": { value: "file", meaning: "write to this new file, or replace this index; required" } },
  async run({ service, cwd }, { flags }) {
    const out = flags.get("--out");
    if (out === undefined)
      throw new UsageError("index needs --out with the path of a new file, or of an index to replace.");
    const path = toAbsolutePath(out, cwd);
    return { path, sessionCount: await service.catalog.exportIndex(path) };
  },
  print: ({ path, sessionCount }) => [show`${count(sessionCount, "session", "sessions")} in ${path}.`],
} satisfies Verb;
