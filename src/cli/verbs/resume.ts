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
  PI_SESSION_SERVER_RESUME='my-agent --resume {id}'`,
  async run(asking, { operands, flags }) {
    const session = operands[0] ?? (await latestHere(asking));
    return resumeSession(asking, session, { command: flags.get("--agent-command"), dryRun: flags.has("--dry-run") });
  },
  print: ({ status, cwd, command }) =>
    status === null ? [`cd ${quoted(cwd)}`, command.map((word: string) => quoted(word)).join(" ")] : [],
  status: ({ status }) => status ?? OK,
});

async function latestHere({ ask, cwd }: VerbContext): Promise<string> {
  const { sessions } = await ask("list_sessions", { cwd, limit: 1 });
  if (sessions.length > 0) return sessions[0].sessionPath;
  const sentence = `No session belongs to ${cwd}. list shows all of them, and resume takes the id of one.`;
  throw new Failure("session_not_found", sentence);
}

/** Returns a word as a shell reads it. */
function quoted(word: string): string {
  const text = show`${word}`;
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
