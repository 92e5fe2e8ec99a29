import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { openedExample, openedResult, toOpened } from "./shared/current-session.ts";

export default defineCommand({
  name: "list_open_sessions",
  summary: "The sessions that this process has open, the current one first.",
  effect: "control",
  describesSessions: true,
  result: () => z.object({ sessions: z.array(z.object({ ...openedResult, current: z.boolean() })) }),
  example: { params: {}, result: { sessions: [{ ...openedExample, readOnly: false, current: true }] } },
  run: ({ workspace }) => ({
    sessions: workspace.sessions.map((session) => ({
      ...toOpened(session),
      current: session === workspace.current,
    })),
  }),
});
