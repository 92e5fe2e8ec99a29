/** Commands of a host that go to the agent behind, and their requirements. */

/** Requirements of a command that goes to the agent. */
export interface AgentRoute {
  /** True if the agent must be at the current session: the command acts on it, or writes to it. */
  readonly onSession: boolean;
  /** True if it needs a running agent; without one, our own command answers at once. */
  readonly ofRunning?: boolean;
  /** True if the agent may be working after it, so that no other program should write. */
  readonly works?: boolean;
}

const ACTS: AgentRoute = { onSession: true };
const WORKS: AgentRoute = { onSession: true, works: true };
const STOPS: AgentRoute = { onSession: false, ofRunning: true };
const ASKS: AgentRoute = { onSession: false };

/** Commands of Pi that the agent answers. The rest are ours. */
const ROUTES: Readonly<Record<string, AgentRoute>> = {
  prompt: WORKS,
  steer: WORKS,
  follow_up: WORKS,
  bash: WORKS,
  compact: WORKS,
  abort: STOPS,
  abort_bash: STOPS,
  abort_retry: STOPS,
  clear_queue: STOPS,
  set_model: ACTS,
  cycle_model: ACTS,
  set_thinking_level: ACTS,
  cycle_thinking_level: ACTS,
  get_available_thinking_levels: ASKS,
  get_available_models: ASKS,
  get_commands: ASKS,
  set_steering_mode: ASKS,
  set_follow_up_mode: ASKS,
  set_auto_compaction: ASKS,
  set_auto_retry: ASKS,
};

/** Commands that send a message to the model: a person waits for the result. */
export const PROMPT_COMMANDS: ReadonlySet<string> = new Set(["prompt", "steer", "follow_up"]);
/** Commands that run a turn, or a compaction. */
export const TURN_COMMANDS: ReadonlySet<string> = new Set([...PROMPT_COMMANDS, "compact"]);
/** Commands whose reply comes at the end of their work. */
export const LONG_COMMANDS: ReadonlySet<string> = new Set([...TURN_COMMANDS, "bash"]);

/** Returns the route of a command; undefined for one of ours. The agent gets the unknown ones. */
export function findRoute(type: string, isOurs: boolean): AgentRoute | undefined {
  if (Object.hasOwn(ROUTES, type)) return ROUTES[type];
  return isOurs ? undefined : ACTS;
}
