/** The environment of an agent. */

/**
 * Returns the variables without those that give the fleet's database to whoever has them: the agent runs what a model says.
 * Whoever starts one, for whatever it is asked, starts it with these.
 */
export function makeAgentVariables(variables: Readonly<Record<string, string | undefined>>): NodeJS.ProcessEnv {
  const { PI_FLEET_URL, PGPASSWORD, ...rest } = variables;
  return rest;
}
