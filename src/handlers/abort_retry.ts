import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "abort_retry",
  summary: "Stops Pi's retry of a model request; none is made here.",
  effect: "control",
  params: {},
  result: z.null(),
  failures: [],
  example: { params: {}, result: null },
  run: () => null,
});
