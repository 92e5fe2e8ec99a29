/** The version of Pi that stands behind the server, for clients of Pi, which ask the program that they start. */

import type { AgentSettings } from "../server/agents-module.ts";
import { makeAgentVariables, type Variables } from "../storage/fs/paths.ts";

/** Milliseconds for an agent to report its version. Pi takes about one second. */
const WITHIN = 10_000;
/** A line that is a version and nothing else. */
const VERSION_LINE = /^v?(\d+\.\d+\.\d+\S*)$/m;

/** Asks an agent that speaks Pi's dialect for its version. Returns undefined if it reports none. */
export async function askAgentVersion(
  { words, protocol }: AgentSettings,
  variables: Variables,
): Promise<string | undefined> {
  if (protocol !== "pi") return undefined;
  const { execFile } = process.getBuiltinModule("node:child_process");
  const [program, ...args] = words;
  return new Promise((resolve) => {
    const env = makeAgentVariables(variables);
    const options = { timeout: WITHIN, killSignal: "SIGKILL", windowsHide: true, env } as const;
    const child = execFile(program, [...args, "--version"], options, (error, stdout, stderr) =>
      resolve(error ? undefined : VERSION_LINE.exec(`${stdout}\n${stderr}`)?.[1]),
    );
    // An agent that knows no --version ends with its input.
    child.stdin?.on("error", () => {}).end();
  });
}
