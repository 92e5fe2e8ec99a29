import { defineCommand } from "./shared/command.ts";
import { exampleId } from "./shared/shapes.ts";
import { BY_OPPOSITE, findUndoSubject, UNDO_FAILURES, undoOrRedo, undoResult, undoTarget } from "./shared/undo-redo.ts";

export default defineCommand({
  name: "redo",
  summary:
    "Brings back what an undo took: by default the newest undo, if nothing else happened after it. An undo that is named " +
    "by its id, or by that of the operation which it took back, can be taken back later too.",
  effect: "write",
  instead: BY_OPPOSITE,
  checksReadOnly: true,
  ofAny: true,
  params: undoTarget,
  result: () => undoResult,
  failures: UNDO_FAILURES,
  example: {
    params: { operationId: "c4d07b52" },
    result: {
      operationId: "c4d07b52e118",
      newOperationId: "0a6be4f3917d",
      kind: "branch",
      sessionId: exampleId,
      sessionPath: "/home/me/sessions/current.jsonl",
      text: "Did again: Moved the leaf from d4e5f6a7 to b2c3d4e5.",
      at: "2026-01-24T16:22:26.831Z",
    },
  },
  about: (workspace, params) => findUndoSubject(workspace, params, "redo"),
  run: (context, params) => undoOrRedo(context, params, "redo"),
});
