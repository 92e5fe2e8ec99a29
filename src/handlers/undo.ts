import { defineCommand } from "./shared/command.ts";
import { exampleId } from "./shared/shapes.ts";
import { BY_OPPOSITE, findUndoSubject, UNDO_FAILURES, undoOrRedo, undoResult, undoTarget } from "./shared/undo-redo.ts";

export default defineCommand({
  name: "undo",
  summary:
    "Takes an operation back: by default the newest that is not undone, of any session and any process, so that repeating " +
    "it walks back; with sessionId, the newest of one session. It is an operation itself, and redo reverses it. Refuses, " +
    "with the reason, if the operation has no way back, or if its result was changed since; `next` then names the next " +
    "older one that has a way back. Of operations that belong together (`group` of archive_session and others), it takes " +
    "back as many as possible and names the rest in `refused`; it refuses when it can take back none. The id of the first " +
    "stands for all of them, that of another for that one. Before the leaf of an open session moves back, the server " +
    "asks session_before_tree, as for branch; of the answer only the veto counts.",
  effect: "write",
  instead: BY_OPPOSITE,
  checksReadOnly: true,
  ofAny: true,
  params: undoTarget,
  result: () => undoResult,
  failures: UNDO_FAILURES,
  example: {
    params: { operationId: "3f2a9c10" },
    result: {
      operationId: "3f2a9c1077de",
      newOperationId: "b81c05e2a96f",
      kind: "branch",
      sessionId: exampleId,
      sessionPath: "/home/me/sessions/current.jsonl",
      text: "Took back: Moved the leaf from b2c3d4e5 to d4e5f6a7.",
      at: "2026-01-24T16:22:26.831Z",
    },
  },
  about: (workspace, params) => findUndoSubject(workspace, params, "undo"),
  run: (context, params) => undoOrRedo(context, params, "undo"),
});
