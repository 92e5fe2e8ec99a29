import { Failure } from "../../core/failure.ts";
import { begin, deletedNotice, type Happening, type PickerEffect, type Step, step, view } from "../picker.ts";
import type { Screen } from "../terminal/screen.ts";
import { exact } from "../terminal/text.ts";
import { type Asking, CommandFailed, FAILURE, OK, type Result, type Verb } from "../verb.ts";

export default {
  name: "browse",
  meaning: "pick a session on the whole screen",
  operands: [],
  more: `  pi --session "$(pi-session-server browse)"

Arrows, j and k, PgUp, PgDn, Home and End move. Enter prints the path of the session and ends.
/ filters by what is typed, and Esc clears the filter.
Ctrl+D deletes the session after y; n or Esc keeps it.
Tab shows the session's tree. There, Enter picks the entry after which the conversation continues, and Esc \
goes back.
q and Ctrl+C end with status 1 and print nothing.`,
  async run(asking) {
    const screen = asking.openScreen();
    if (screen === undefined)
      throw new Failure("unsupported_command", "browse needs a terminal to draw on. list prints the sessions.");
    try {
      return { sessionPath: await pick(asking, screen) };
    } finally {
      screen.close();
    }
  },
  print: ({ sessionPath }, _given, page) => (sessionPath === null ? [] : [exact(sessionPath, page.isTerminal)]),
  status: ({ sessionPath }) => (sessionPath === null ? FAILURE : OK),
} satisfies Verb;

/** Resolves to the path of the session that is picked, or to null. */
function pick(asking: Asking, screen: Screen): Promise<string | null> {
  const act = actions(asking);
  return new Promise((resolve, reject) => {
    let { state, effects }: Step = begin(screen.rows, screen.columns);
    // Keys that were sent before the screen was closed are ignored.
    let isOver = false;
    const end = (path: string | null): void => {
      isOver = true;
      resolve(path);
    };
    const go = (happening: Happening): void => {
      if (isOver) return;
      ({ state, effects } = step(state, happening));
      show();
    };
    const show = (): void => {
      screen.draw(view(state, asking.page(screen.columns)));
      for (const effect of effects) {
        if (effect.do === "end") end(effect.sessionPath);
        else act(effect).then((happening) => happening && go(happening), reject);
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

type Action = Exclude<PickerEffect, { do: "end" }>;

/** Returns a function that carries out the picker's effects by commands. */
function actions({ ask }: Asking): (effect: Action) => Promise<Happening | undefined> {
  /** The session whose tree is on the screen. */
  let shown: string | undefined;
  return async (effect) => {
    try {
      switch (effect.do) {
        case "list": {
          const { query, cursor, limit } = effect;
          const { sessions, total, nextCursor } = await ask("list_sessions", {
            query: query.trim() === "" ? undefined : query,
            cursor,
            limit,
          });
          return { what: "listed", sessions, total, cursor: nextCursor };
        }
        case "open": {
          const { session } = effect;
          const { sessionId } = await ask("open_session", { sessionPath: session.sessionPath });
          shown = sessionId;
          const { nodes, leafId } = await ask("get_tree", { sessionId, format: "flat" });
          return { what: "opened", session, nodes, leafId };
        }
        case "move": {
          const { leafId, durable }: Result = await ask("branch", { sessionId: shown, entryId: effect.entryId });
          return { what: "moved", leafId, isKept: durable };
        }
        case "close": {
          const sessionId = shown;
          shown = undefined;
          await ask("close_session", { sessionId });
          return undefined;
        }
        case "delete": {
          const { session } = effect;
          const deleted = await ask("delete_session", { sessionPath: session.sessionPath });
          return { what: "deleted", session, notice: deletedNotice(deleted) };
        }
      }
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error;
      return { what: "failed", isList: effect.do === "list", message: error.message };
    }
  };
}
