import * as z from "zod";
import { bytesOf } from "../core/json.ts";
import { Raw } from "../core/raw.ts";
import { command } from "./command.ts";

export default command({
  name: "cycle_thinking_level",
  summary: "Switches to the next thinking level of the model; without a model there is none.",
  effect: "control",
  params: {},
  result: z.null(),
  failures: [],
  example: { params: {}, result: null },
  run: () => null,
  // Pi says so in as many words.
  pi: () => Raw.of(bytesOf("null")),
});
