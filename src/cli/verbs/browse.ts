import { Failure } from "../../core/failure.ts";
import { resumeSession } from "../agent.ts";
import { type Action, createActions } from "../browse/actions.ts";
import { begin, step } from "../browse/machine.ts";
import type { BrowseEvent, Step } from "../browse/state.ts";
import { renderScreen } from "../browse/view.ts";
import { UsageError } from "../options.ts";
import type { Screen } from "../terminal/screen.ts";
import { escapeLines, toRawPath } from "../terminal/text.ts";
import { CommandFailed, defineVerb, FAILURE, OK, type VerbContext } from "../verb.ts";

export default defineVerb({
  name: "browse",
  meaning: "look through sessions on the whole screen, and pick one",
  operands: ["[words...]"],
  more: `  pi --session "$(pi-session-server browse)"

The sessions of the current directory come first; Tab shows those of all. Enter opens the \
session in your agent, as resume does; where the output is no terminal, as above, it prints the path. ? lists the keys, and the last line shows the most needed.
/ filters by names and by all that was said, as words on the command line do; the preview shows where.
t shows the session's tree. There, Enter asks whether the conversation shall continue from the entry; from a user \
message it continues before it, and the message's text is copied.
Space marks sessions that a archives, or d deletes, together. Only keys that say so change a session, and u takes the last change back.
q and Ctrl+C end with status 1, print nothing and start nothing.`,
  async run(asking, { operands, flags }) {
    const screen = asking.openScreen();
    if (screen === undefined)
      throw new Failure("unsupported_command", "browse needs a terminal to draw on. list prints the sessions.");
    let picked: Picked;
    try {
      picked = await pick(asking, screen, operands.join(" "));
    } finally {
      screen.close();
    }
    // A script wants the path; a person at a terminal wants the session opened.
    const isForScript = !asking.isTerminal || flags.has("--json");
    return picked.sessionPath === null || isForScript ? picked : resumed(asking, picked.sessionPath);
  },
  print({ sessionPath, text, status }, _given, page) {
    const lines = sessionPath === null || typeof status === "number" ? [] : [toRawPath(sessionPath, page.isTerminal)];
    // A program that reads our output wants the path alone.
    return text === undefined || !page.isTerminal ? lines : [...lines, ...escapeLines(text)];
  },
  status: ({ sessionPath, status }) => status ?? (sessionPath === null ? FAILURE : OK),
});

interface Picked {
  readonly sessionPath: string | null;
  /** The text of the message that the conversation was taken back to before. */
  readonly text?: string;
  /** The exit status of the agent that it was opened in; null where it was not started. */
  readonly status?: number | null;
}

/** Starts the agent with a session. Where that cannot be, says why, and leaves the path. */
async function resumed(asking: VerbContext, sessionPath: string): Promise<Picked> {
  try {
    return await resumeSession(asking, sessionPath);
  } catch (error) {
    if (!(error instanceof Failure || error instanceof CommandFailed || error instanceof UsageError)) throw error;
    asking.say(error.message);
    return { sessionPath, status: null };
  }
}

/** Resolves to the session that is picked, if any. */
function pick(asking: VerbContext, screen: Screen, words: string): Promise<Picked> {
  const act = createActions(asking);
  return new Promise((resolve, reject) => {
    let { state, effects }: Step = begin(screen.rows, screen.columns, asking.cwd, words);
    // Keys that were sent before the screen was closed are ignored.
    let isOver = false;
    const end = (sessionPath: string | null): void => {
      isOver = true;
      resolve({ sessionPath, text: state.text });
    };
    const go = (event: BrowseEvent): void => {
      if (isOver) return;
      ({ state, effects } = step(state, event));
      show();
    };
    const carryOut = (effect: Action): void => {
      act(effect).then((event) => event && go(event), reject);
    };
    const show = (): void => {
      screen.draw(renderScreen(state, asking.page(screen.columns)));
      for (const effect of effects) {
        if (effect.do === "end") end(effect.session?.sessionPath ?? null);
        else if (effect.do === "copy") screen.copy(effect.text);
        else carryOut(effect);
      }
    };
    screen.listen({
      key: (key) => go({ what: "key", key }),
      resized: () => go({ what: "resized", rows: screen.rows, columns: screen.columns }),
      gone: () => end(null),
    });
    show();
  });
}
