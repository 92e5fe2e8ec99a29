import { point, type Verb } from "../verb.ts";
import { movementLines } from "./migrate.ts";

export default {
  name: "rollback",
  meaning: "make the file of a migrated session the session again",
  operands: ["<session>"],
  flags: { "--reason": { value: "text", meaning: "why; it is kept with the rollback" } },
  more: "What was appended since the migration follows the file's own lines. Where the frozen file is gone, all of it is written from the container. The container is kept aside.",
  async run(asking, { operands, flags }) {
    const where = await point(asking, operands[0]);
    const reason = flags.get("--reason");
    return asking.ask("rollback_migration", reason === undefined ? where : { ...where, reason });
  },
  print: movementLines,
} satisfies Verb;
