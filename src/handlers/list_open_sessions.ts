import * as z from "zod";
import { command } from "./shared/command.ts";
import { opened, openedAs } from "./shared/current-session.ts";

export default command({
  name: "list_open_sessions",
  summary: "The sessions that this process has open, the current one first.",
  effect: "control",
  result: z.object({ sessions: z.array(z.object({ ...opened, current: z.boolean() })) }),
  example: {
    params: {},
    result: {
      sessions: [
        {
          sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
          sessionFile: "/home/me/sessions/old.jsonl",
          leafId: "c3d4e5f6",
          readOnly: false,
          current: true,
        },
      ],
    },
  },
  run: ({ workspace }) => ({
    sessions: workspace.sessions.map((session) => ({ ...openedAs(session), current: session === workspace.current })),
  }),
});
