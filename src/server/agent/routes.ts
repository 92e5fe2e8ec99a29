/** Which commands of a host go to the agent behind, and what they need there. */

/** The way of a command to the agent. */
export interface AgentRoute {
  /** Whether the agent has to be at the session that is current: it acts on it, or writes to it. */
  readonly onSession: boolean;
  /** Whether it means nothing to an agent that does not run: then the command is ours, which answers at once. */
  readonly ofRunning?: boolean;
  /** Whether the agent may be at work after it, so that nobody else should write. */
  readonly works?: boolean;
}

const ACTS: AgentRoute = { onSession: true };
const WORKS: AgentRoute = { onSession: true, works: true };
const STOPS: AgentRoute = { onSession: false, ofRunning: true };
const ASKS: AgentRoute = { onSession: false };

/** Commands of Pi that its agent answers. All others are ours. */
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

/** Commands that send a message to the model: a person waits for what they bring. */
export const PROMPT_COMMANDS: ReadonlySet<string> = new Set(["prompt", "steer", "follow_up"]);
/** Those of a turn, or of what takes the place of one. */
export const TURN_COMMANDS: ReadonlySet<string> = new Set([...PROMPT_COMMANDS, "compact"]);
/** Commands whose replies come when the work is done. */
export const LONG_COMMANDS: ReadonlySet<string> = new Set([...TURN_COMMANDS, "bash"]);

/** Returns the way of a command; undefined for one of ours. One that nobody knows is the agent's to judge. */
export function findRoute(type: string, isOurs: boolean): AgentRoute | undefined {
  if (Object.hasOwn(ROUTES, type)) return ROUTES[type];
  return isOurs ? undefined : ACTS;
}
