import { VERSION } from "../../version.ts";
import type { Verb } from "../verb.ts";

export default {
  name: "version",
  meaning: "print the version",
  operands: [],
  run: async () => ({ version: VERSION }),
  print: ({ version }) => [version],
} satisfies Verb;
