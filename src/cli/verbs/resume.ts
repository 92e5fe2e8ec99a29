import { quoteWord } from "../../core/export/resumable.ts";
import { Failure } from "../../core/failure.ts";
import { resumeSession } from "../agent.ts";
import { show } from "../terminal/text.ts";
import { defineVerb, OK, type VerbContext } from "../verb.ts";

export default defineVerb({
  name: "resume",
  meaning: "open a session in your agent, in the session's directory",
  operands: ["[session]"],
  flags: {
    "--agent-command": {
      value: "command",
      meaning: "start this agent, with {path}, {id} or {cwd} for the session; pi --session {path} by default",
    },
    "--dry-run": { meaning: "print the directory and the command, and start nothing" },
  },
  more: `Without a session, it opens the session of this directory with the latest message. The agent gets this terminal; its exit status becomes that of resume. PI_SESSION_SERVER_RESUME names your agent for good, and no shell runs the command:
  PI_SESSION_SERVER_RESUME='my-agent --resume {id}'
For a session of another agent, it prints the command of that agent, such as claude --resume <id>, and starts nothing.`,
  async run(asking, { operands, flags }) {
    const session = operands[0] ?? (await findLatestHere(asking));
    return resumeSession(asking, session, { command: flags.get("--agent-command"), dryRun: flags.has("--dry-run") });
  },
  isExact: () => true,
  print: ({ status, cwd, command }) =>
    status === null ? [...(cwd === "" ? [] : [`cd ${quoted(cwd)}`]), command.map(quoted).join(" ")] : [],
  status: ({ status }) => status ?? OK,
});

const quoted = (word: string): string => quoteWord(show`${word}`);

/** Returns the path of the session of this directory in which something was said last. Throws session_not_found. */
export async function findLatestHere({ ask, cwd }: VerbContext): Promise<string> {
  const { sessions } = await ask("list_sessions", { cwd, limit: 1 });
  if (sessions.length > 0) return sessions[0].sessionPath;
  const sentence = `No session belongs to ${cwd}. list shows all of them; name one by its id.`;
  throw new Failure("session_not_found", sentence);
}
