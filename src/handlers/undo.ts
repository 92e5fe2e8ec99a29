import { command } from "./shared/command.ts";
import { exampleId } from "./shared/shapes.ts";
import { FAILURES_OF_TAKING_BACK, outcome, subjectOf, takeBack, which } from "./shared/taking-back.ts";

export default command({
  name: "undo",
  summary:
    "Takes an operation back: by default the newest that is not undone, so that repeating it walks back. It is an " +
    "operation itself, and redo brings back what it took. Refuses, and says why, when what the operation changed has " +
    "changed since.",
  effect: "write",
  ofAny: true,
  params: which,
  result: outcome,
  failures: FAILURES_OF_TAKING_BACK,
  example: {
    params: { operationId: "3f2a9c10" },
    result: {
      operationId: "3f2a9c1077de",
      newOperationId: "b81c05e2a96f",
      kind: "branch",
      sessionId: exampleId,
      sessionPath: "/home/me/sessions/current.jsonl",
      text: "Took back: Moved the leaf from b2c3d4e5 to d4e5f6a7.",
    },
  },
  about: (workspace, params) => subjectOf(workspace, params, "undo"),
  run: (context, params) => takeBack(context, params, "undo"),
});
