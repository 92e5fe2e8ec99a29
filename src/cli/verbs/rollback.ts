import { point, type Verb } from "../verb.ts";
import { movementLines } from "./migrate.ts";

export default {
  name: "rollback",
  meaning: "make the file of a migrated session the session again",
  operands: ["<session>"],
  flags: { "--reason": { value: "text", meaning: "the reason; it is recorded with the rollback" } },
  more: "What was appended since the migration follows the file's own lines. If the kept file is missing, all of it is written from the container. The container is kept under another name.",
  async run(asking, { operands, flags }) {
    const where = await point(asking, operands[0]);
    const reason = flags.get("--reason");
    return asking.ask("rollback_migration", reason === undefined ? where : { ...where, reason });
  },
  print: movementLines,
} satisfies Verb;
