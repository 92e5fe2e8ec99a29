/** The environment of an agent. */

/**
 * Returns the variables without those that open the fleet's database: the agent runs commands of a model. Every agent
 * must be started with these.
 */
export function makeAgentVariables(variables: Readonly<Record<string, string | undefined>>): NodeJS.ProcessEnv {
  const { PI_FLEET_URL, PGPASSWORD, ...rest } = variables;
  return rest;
}
