import { named, type Verb } from "../verb.ts";
import { movedLine } from "./archive.ts";

export default {
  name: "unarchive",
  meaning: "bring back an archived session",
  operands: ["<session>"],
  flags: {},
  more: "Name it by its path or its full id. Nothing is overwritten.",
  run: ({ ask }, { operands }) => ask("unarchive_session", named(operands[0])),
  print: movedLine,
} satisfies Verb;
