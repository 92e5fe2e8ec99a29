import { defineArchiving } from "./shared/closed-sessions.ts";

export default defineArchiving(
  "unarchive_session",
  "Moves an archived session back to where it was. Overwrites nothing.",
  "unarchive",
  {
    sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120006",
    sessionPath:
      "/home/me/.local/state/pi-session-server/archive/5f1d7c3eb0a40242/--home-me-app--/archived_01991f6e-1f1d-7c3e-b0a4-0242ac120006.jsonl",
    movedTo: "/home/me/.pi/agent/sessions/--home-me-app--/archived_01991f6e-1f1d-7c3e-b0a4-0242ac120006.jsonl",
  },
);
