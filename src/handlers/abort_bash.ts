import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "abort_bash",
  summary: "Stops the shell command that Pi runs for its user; none runs here.",
  effect: "control",
  params: {},
  result: z.null(),
  failures: [],
  example: { params: {}, result: null },
  run: () => null,
});
