import * as z from "zod";
import { command } from "./shared/command.ts";
import { opened, openedAs, openedExample } from "./shared/current-session.ts";

export default command({
  name: "list_open_sessions",
  summary: "The sessions that this process has open, the current one first.",
  effect: "control",
  result: () => z.object({ sessions: z.array(z.object({ ...opened, current: z.boolean() })) }),
  example: { params: {}, result: { sessions: [{ ...openedExample, readOnly: false, current: true }] } },
  run: ({ workspace }) => ({
    sessions: workspace.sessions.map((session) => ({ ...openedAs(session), current: session === workspace.current })),
  }),
});
