import { Failure } from "../../core/failure.ts";
import { type Action, actions } from "../browse/actions.ts";
import { begin, step } from "../browse/machine.ts";
import type { Happening, Step } from "../browse/state.ts";
import { view } from "../browse/view.ts";
import type { Screen } from "../terminal/screen.ts";
import { exact, inertLines } from "../terminal/text.ts";
import { type Asking, FAILURE, OK, type Result, type Verb } from "../verb.ts";

export default {
  name: "browse",
  meaning: "look through sessions on the whole screen, and pick one",
  operands: [],
  more: `  pi --session "$(pi-session-server browse)"

The sessions of the current directory come first; Tab shows those of all. Enter prints the path of the session and \
ends. ? lists the keys, and the last line shows the most needed.
/ filters by names and by all that was said; the preview shows where.
t shows the session's tree. There, Enter asks whether the conversation shall continue from the entry; from a user \
message it continues before it, and the message's text is copied.
Only keys that say so change a session, and u takes the last change back.
q and Ctrl+C end with status 1, print nothing and start nothing.`,
  async run(asking) {
    const screen = asking.openScreen();
    if (screen === undefined)
      throw new Failure("unsupported_command", "browse needs a terminal to draw on. list prints the sessions.");
    try {
      return await pick(asking, screen);
    } finally {
      screen.close();
    }
  },
  print({ sessionPath, text }, _given, page) {
    const lines = sessionPath === null ? [] : [exact(sessionPath, page.isTerminal)];
    // A program that reads our output wants the path alone.
    return text === undefined || !page.isTerminal ? lines : [...lines, ...inertLines(text)];
  },
  status: ({ sessionPath }) => (sessionPath === null ? FAILURE : OK),
} satisfies Verb;

/** Resolves to the path of the session that is picked, or to null. */
function pick(asking: Asking, screen: Screen): Promise<Result> {
  const act = actions(asking);
  return new Promise((resolve, reject) => {
    let { state, effects }: Step = begin(screen.rows, screen.columns, asking.cwd);
    // Keys that were sent before the screen was closed are ignored.
    let isOver = false;
    const end = (sessionPath: string | null): void => {
      isOver = true;
      resolve({ sessionPath, text: state.text });
    };
    const go = (happening: Happening): void => {
      if (isOver) return;
      ({ state, effects } = step(state, happening));
      show();
    };
    const carryOut = (effect: Action): void => {
      act(effect).then((happening) => happening && go(happening), reject);
    };
    const show = (): void => {
      screen.draw(view(state, asking.page(screen.columns)));
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
