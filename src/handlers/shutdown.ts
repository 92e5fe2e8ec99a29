import * as z from "zod";
import { command } from "./shared/command.ts";

export default command({
  name: "shutdown",
  summary: "Answers everything received before, makes it durable, closes the session cleanly and ends.",
  effect: "control",
  result: () => z.null(),
  example: { params: {}, result: null },
  run(context) {
    context.shutDown();
    return null;
  },
});
