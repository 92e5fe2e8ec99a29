import {
  CHOOSING_FLAGS,
  doEach,
  doEachListed,
  type EachResult,
  expectUnchangedSince,
  findChosenSessions,
  findNamedSessions,
  formatEachListed,
  getEachStatus,
  printEach,
  type WouldChange,
} from "../bulk.ts";
import { requireYes } from "../confirmed.ts";
import { UsageError } from "../options.ts";
import type { NamedSession } from "../sessions.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, formatAge, quoteTitle, shortenId, shortenPath, show } from "../terminal/text.ts";
import { CommandFailed, defineVerb, type ResultOf, type VerbContext } from "../verb.ts";

type DeletedOne = ResultOf<"delete_session">;

/** Columns of a name in a question, and sessions that it names. */
const NAME = 40;
const MOST_NAMED = 5;

const named = printEach(({ sessionId, trash }: DeletedOne) => [
  `${shortenId(sessionId)} ${describeOutcome("is", trash)}`,
]);

export default defineVerb({
  name: "delete",
  aliases: ["rm"],
  meaning: "move sessions to the trash",
  operands: ["<session...>"],
  replacesOperands: ["--until", "--cwd"],
  flags: {
    ...CHOOSING_FLAGS,
    "--yes": { meaning: "do not ask; required without a terminal" },
    "--permanent": { meaning: "delete for good; nothing brings it back" },
  },
  more: "It asks first, with the name or first message of each session. Without a session, --until and --cwd choose them. The trash command of your desktop takes them, or else the server's own trash, from which restore brings them back; trash empty removes them for good.",
  onInterrupt: "Each session is either deleted or as it was; list shows those that are there.",
  async run(asking, given) {
    const { flags } = given;
    const permanent = flags.has("--permanent") ? true : undefined;
    const chosen = await findChosenSessions(asking, given);
    if (chosen !== undefined) {
      const end = await describeDeletion(asking, permanent === true);
      const question = { ask: (what: string) => `Delete ${what}${end}`, refused: REFUSED };
      return doEachListed(asking, given, chosen, question, ({ params }, group) =>
        asking.ask("delete_session", { ...params, permanent, group }),
      );
    }
    const sessions = await findNamedSessions(asking, given, "both");
    if (flags.has("--yes")) requireIds(sessions);
    else
      await requireYes(asking, await question(asking, sessions, permanent === true), {
        alone: "delete asks first, and there is no terminal to ask on; use --yes.",
        refused: REFUSED,
      });
    const isAsked = !flags.has("--yes");
    return doEach(asking, sessions, ({ params, listed }, group) => {
      const expected = isAsked && listed ? expectUnchangedSince(listed) : undefined;
      return asking.ask("delete_session", { ...params, permanent, group, expected });
    });
  },
  print(result: EachResult<DeletedOne> | WouldChange, given, page) {
    if (given.operands.length > 0 && !("sessions" in result)) return named.print(result, given, page);
    const did = ([{ trash }, ...others]: readonly DeletedOne[]): string => {
      const isOne = others.length === 0;
      return `${count(others.length + 1, "session", "sessions")} ${describeOutcome(isOne ? "is" : "are", trash)}`;
    };
    return formatEachListed(result, { would: "be deleted", did }, page);
  },
  status: getEachStatus,
});

const REFUSED = "Nothing was deleted.";

/** Returns where deleted sessions are now, and their way back. */
function describeOutcome(is: "is" | "are", trash: DeletedOne["trash"]): string {
  if (trash === "none") return `${is} deleted for good.`;
  if (trash === "desktop") return `${is} in the desktop's trash.`;
  const them = is === "is" ? "it" : "them";
  return `${is} in the trash; undo or restore brings ${them} back, trash empty removes ${them} for good.`;
}

/** Throws UsageError if no person is asked and an operand is a name, which several sessions can have. */
function requireIds(sessions: readonly NamedSession[]): void {
  const byName = sessions.find((session) => session.byName);
  if (byName === undefined) return;
  const { operand, listed } = byName;
  throw new UsageError(`With --yes, delete takes an id or a path; ${operand} is a name, and the id is ${listed?.id}.`);
}

async function question(asking: VerbContext, sessions: readonly NamedSession[], permanent: boolean): Promise<string> {
  const page = asking.page();
  const described: string[] = [];
  for (const session of sessions.slice(0, MOST_NAMED)) described.push(await describe(asking, session, page));
  const end = await describeDeletion(asking, permanent);
  if (sessions.length === 1) return `Delete ${described[0]}${end}`;
  const more = sessions.length - described.length;
  const lines = more > 0 ? [...described, `and ${count(more, "more session", "more sessions")}`] : described;
  return `${lines.map((line) => `  ${line}\n`).join("")}Delete these ${sessions.length} sessions${end}`;
}

/** Returns the end of the question, which says so where undo will not bring the sessions back. */
async function describeDeletion({ ask }: VerbContext, permanent: boolean): Promise<string> {
  if (permanent) return " for good? It cannot be restored.";
  const { desktopTrash } = await ask("list_trash", { limit: 1 });
  return desktopTrash ? "? The trash command takes it, and undo cannot bring it back from there." : "?";
}

/** Returns the name of a session, how much was said in it, and where and when. */
async function describe(asking: VerbContext, session: NamedSession, page: OutputStyle): Promise<string> {
  const { operand, listed } = session;
  const said = listed ?? (await factsAt(asking, operand));
  if (said === undefined) return show`${operand}`;
  const { name, firstMessage, messageCount, cwd, modified } = said;
  return [
    name || firstMessage ? quoteTitle(said, NAME) : show`${operand}`,
    count(messageCount, "message", "messages"),
    ...(cwd ? [shortenPath(cwd, page.home)] : []),
    ...(modified === null ? [] : [formatAge(page.now - modified)]),
  ].join(", ");
}

type SaidFacts = Pick<
  NonNullable<NamedSession["listed"]>,
  "name" | "firstMessage" | "messageCount" | "cwd" | "modified"
>;

/** Returns the known facts about a session that was named by its path; undefined if it cannot be opened. */
async function factsAt({ ask }: VerbContext, sessionPath: string): Promise<SaidFacts | undefined> {
  try {
    const { sessionId } = await ask("open_session", { sessionPath, readOnly: true });
    const { sessionName: name, cwd } = await ask("get_state", { sessionId });
    const { totalMessages: messageCount } = await ask("get_session_stats", { sessionId });
    const { messages } = await ask("get_fork_messages", { sessionId, limit: 1 });
    await ask("close_session", { sessionId });
    return { name, firstMessage: messages[0]?.text ?? null, messageCount, cwd, modified: null };
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    return undefined;
  }
}
