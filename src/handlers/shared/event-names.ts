/** Names of the events, apart from their declarations: the command line needs them at every start. */

export const eventNames = [
  "session_start",
  "session_shutdown",
  "session_tree",
  "session_fork",
  "session_compact",
  "session_append",
  "session_info_changed",
  "session_damage",
  "session_durability_changed",
  "session_owner_changed",
  "client_joined",
  "client_left",
  "events_lost",
] as const;
