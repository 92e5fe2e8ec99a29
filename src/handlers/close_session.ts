import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "close_session",
  summary: "Makes a session durable and closes it cleanly.",
  effect: "close",
  params: { sessionId: z.string().optional().describe("the current one by default; then none is current") },
  result: () => z.null(),
  example: { params: { sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002" }, result: null },
  async run({ workspace, session }) {
    await workspace.closeSession(session);
    return null;
  },
});
