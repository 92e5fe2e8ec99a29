import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "abort",
  summary: "Stops the agent, as Pi does; nothing runs here that could be stopped.",
  effect: "control",
  params: {},
  result: z.null(),
  failures: [],
  example: { params: {}, result: null },
  run: () => null,
});
