import * as z from "zod";
import { command } from "./shared/command.ts";

export default command({
  name: "list_open_sessions",
  summary: "The sessions that this process has open, the current one first.",
  effect: "control",
  params: {},
  result: z.object({
    sessions: z.array(
      z.object({
        sessionId: z.string(),
        sessionFile: z.string().nullable(),
        leafId: z.string().nullable(),
        current: z.boolean(),
        readOnly: z.boolean(),
      }),
    ),
  }),
  failures: [],
  example: {
    params: {},
    result: {
      sessions: [
        {
          sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
          sessionFile: "/home/me/sessions/old.jsonl",
          leafId: "c3d4e5f6",
          current: true,
          readOnly: false,
        },
      ],
    },
  },
  run: ({ workspace }) => ({
    sessions: workspace.sessions.map((session) => ({
      sessionId: session.id,
      sessionFile: session.file,
      leafId: session.leafId,
      current: session === workspace.current,
      readOnly: session.log.readOnly !== null,
    })),
  }),
});
