import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
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
