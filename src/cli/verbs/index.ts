import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { UsageError } from "../options.ts";
import { count, show } from "../terminal/text.ts";
import type { Verb } from "../verb.ts";

export default {
  name: "index",
  meaning: "write the table of sessions to a SQLite file",
  operands: [],
  more:
    "For scripts that read pi_agent_rust's index: the columns are the same; last_modified_ms is the time of the file. " +
    "An existing index is replaced in one step; any other file is left alone.",
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
