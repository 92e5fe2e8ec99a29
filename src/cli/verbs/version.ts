import { VERSION } from "../../version.ts";
import { defineVerb } from "../verb.ts";

export default defineVerb({
  name: "version",
  meaning: "print the version",
  operands: [],
  run: async () => ({ version: VERSION }),
  print: ({ version }) => [version],
});
