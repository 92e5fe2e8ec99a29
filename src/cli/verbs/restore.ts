import { named, type Verb } from "../verb.ts";
import { movedLine } from "./archive.ts";

export default {
  name: "restore",
  meaning: "bring back a deleted session",
  operands: ["<session>"],
  flags: {},
  more: "Name it by its full id, by the path it had, or by its path in the trash. Nothing is overwritten.",
  run: ({ ask }, { operands }) => ask("restore_session", named(operands[0])),
  print: movedLine,
} satisfies Verb;
