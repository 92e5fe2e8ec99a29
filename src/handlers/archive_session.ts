import { defineArchiving } from "./shared/closed-sessions.ts";

export default defineArchiving(
  "archive_session",
  "Moves a session that is not open out of the session folders, so that agents do not list it; list_sessions does " +
    "with archived.",
  "archive",
  {
    sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120005",
    sessionPath: "/home/me/.pi/agent/sessions/--home-me-app--/listed_01991f6e-1f1d-7c3e-b0a4-0242ac120005.jsonl",
    movedTo:
      "/home/me/.local/state/pi-session-server/archive/5f1d7c3eb0a40242/--home-me-app--/listed_01991f6e-1f1d-7c3e-b0a4-0242ac120005.jsonl",
  },
);
