import { platform } from "node:os";
import { dirname } from "node:path";
import type { Commands } from "../../client/protocol.ts";
import { isErrno } from "../../core/errno.ts";
import { getInfo } from "../../storage/fs/files.ts";
import { findProgram } from "../../storage/fs/programs.ts";
import type { ViewedSession, Viewer } from "../../view/main.ts";
import { AGENTS_FLAG, parseAgents, parsePositive, UsageError } from "../options.ts";
import { parseDuration } from "../time-parser.ts";
import { CommandFailed, defineVerb, openNamedSession, type VerbArguments, type VerbContext } from "../verb.ts";

/** The highest number of a port. */
const LAST_PORT = 65_535;
/** Milliseconds beyond which timers of Node count wrong. */
const LONGEST = 2 ** 31 - 1;

export default defineVerb({
  name: "view",
  aliases: ["web"],
  meaning: "look at sessions in a browser",
  operands: ["[session]"],
  serverOptions: ["--read-only", "--events=session_append,session_damage"],
  isLive: true,
  flags: {
    "--port": { value: "n", meaning: "serve at this port instead of a free one" },
    "--open": { meaning: "open the address in the browser" },
    "--idle": { value: "time", meaning: "end after so long without a reader, such as 30m or 2h" },
    "--agents": AGENTS_FLAG,
    "--json": { meaning: "print the address as JSON" },
  },
  more: "It serves this machine alone, prints the address and changes nothing. Anyone who has the address, which holds a secret, can read the sessions. Ctrl+C ends it.",
  async run(asking, given) {
    const { flags } = given;
    const port = portOf(flags);
    const idle = idleOf(flags);
    const session = given.operands.length > 0 ? await sessionOf(asking, given.operands[0]) : undefined;
    const viewer = await started(asking, port, parseAgents(flags));
    let end = (): void => {};
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    const undo = asking.onInterrupt(end);
    try {
      asking.listen(async (_name, { sessionId }) => viewer.onSessionEvent(sessionId));
      if (idle !== undefined) viewer.whenIdle(idle, end);
      await printAddress(asking, given, viewer, session, end);
      // A browser that is started here may stay until it is closed.
      const opening = flags.has("--open") ? openBrowser(asking, viewer.addressOnce(session)) : undefined;
      await Promise.race([over, opening?.then(() => over) ?? over]);
    } finally {
      undo();
      await viewer.end();
    }
  },
  print: () => [],
});

function portOf(flags: VerbArguments["flags"]): number {
  const port = parsePositive(flags, "--port") ?? 0;
  if (port > LAST_PORT) throw new UsageError(`--port takes a number up to ${LAST_PORT}; it got ${port}.`);
  return port;
}

function idleOf(flags: VerbArguments["flags"]): number | undefined {
  const text = flags.get("--idle");
  if (text === undefined) return undefined;
  const length = parseDuration(text);
  if (length === undefined || length > LONGEST)
    throw new UsageError(`--idle takes a time such as 30m or 2h, of at most 24 days; it got ${text}.`);
  return length;
}

async function sessionOf(asking: VerbContext, operand: string): Promise<ViewedSession> {
  await openNamedSession(asking, operand);
  const { sessionFile: sessionPath, sessionId } = await asking.ask("get_state");
  // The page opens it again while it has a viewer.
  await asking.ask("close_session");
  return { sessionPath: sessionPath ?? "", sessionId };
}

/** Starts the web server. Throws UsageError where the port cannot be had. */
async function started(asking: VerbContext, port: number, agents: ReturnType<typeof parseAgents>): Promise<Viewer> {
  const { AskFailed, startView } = await import("../../view/main.ts");
  const host = {
    async ask(method: keyof Commands, params?: Readonly<Record<string, unknown>>) {
      try {
        return await asking.ask(method, params);
      } catch (error) {
        if (!(error instanceof CommandFailed)) throw error;
        throw new AskFailed(error.error.data?.name ?? "invalid_params", error.message);
      }
    },
    // A session in a database has a path below that.
    isThere: (path: string) => [path, dirname(path)].some((at, n) => isAt(asking, at, n === 1)),
    ...(agents === undefined ? {} : { agents }),
    now: () => asking.page(0).now,
    home: asking.variables.HOME,
  };
  try {
    return await startView({ host, port, onError: asking.say });
  } catch (error) {
    if (!isErrno(error) || port === 0) throw error;
    throw new UsageError(`Port ${port} cannot be had (${error.code}). Leave --port out for one that is free.`);
  }
}

function isAt({ disk }: VerbContext, path: string, asFile: boolean): boolean {
  const info = getInfo(disk, path);
  return info !== null && (!asFile || info.kind === "file");
}

async function printAddress(
  asking: VerbContext,
  { flags }: VerbArguments,
  viewer: Viewer,
  session: ViewedSession | undefined,
  end: () => void,
): Promise<void> {
  const url = viewer.address(session);
  const text = flags.has("--json") ? JSON.stringify({ url }) : url;
  if (!(await asking.print(`${text}\n`))) return end();
  asking.say("Open this address in a browser on this machine. Ctrl+C ends it.");
}

/** Opens an address in the person's browser, or says that it could not. */
async function openBrowser({ start, say, disk, variables, cwd }: VerbContext, url: string): Promise<void> {
  const name = platform() === "darwin" ? "open" : "xdg-open";
  const program = findProgram(disk, variables, name);
  if (program === undefined) return say(`There is no ${name} here; open the address yourself.`);
  try {
    const status = await start({ program, args: [url], cwd, variables });
    if (status !== 0) say(`${name} ended with status ${status}; open the address yourself.`);
  } catch (error) {
    if (!isErrno(error)) throw error;
    say(`${program} cannot be started (${error.code}); open the address yourself.`);
  }
}
