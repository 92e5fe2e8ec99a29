/** Calls that other processes run: each keeps its key from one to the next, so that none runs it twice. */

import { expect, test } from "vitest";
import type { AttachModule } from "../../../src/server/attach-module.ts";
import { type PassedCall, Redirection, type RemoteRunner } from "../../../src/server/dispatch/gate.ts";
import type { Sharing } from "../../../src/server/dispatch/sharing.ts";
import { user } from "../../support/drafts.ts";
import { serveHere } from "../../support/server.ts";

/** Shares sessions with holders of a test: the first one gets each append. */
function shareWith(first: RemoteRunner): AttachModule {
  const nothing = (): undefined => undefined;
  const sharing: Sharing = {
    before: ({ command }) => (command.name === "append" ? new Redirection(first) : undefined),
    ...{ findHolder: nothing, follow: nothing, report: nothing, introduce: nothing, plan: nothing, poll: nothing },
    ...{ stop: nothing, hurry: nothing, close: nothing, hasGuests: () => false, clientsOf: () => [] },
    getHooks: () => ({ has: () => false }) as unknown as ReturnType<Sharing["getHooks"]>,
    alone: (_session, _doing, run) => run(),
  };
  return { makeSharing: () => ({ canJoin: () => false, share: () => sharing }) };
}

test("a call without a key keeps the one under which an ended holder may have run it, at the next holder", async () => {
  const passed: PassedCall[] = [];
  const second: RemoteRunner = {
    pass: (call) => {
      passed.push(call);
      call.settle({ result: { entryIds: [], leafId: null } });
    },
    cancel: () => {},
  };
  const first: RemoteRunner = {
    pass: (call) => {
      passed.push(call);
      // It has ended, and this process does not get the session: another one has it by now.
      const keyed = { ...call.call, params: { ...(call.call.params as object), idempotencyKey: "given", entries: [] } };
      void Promise.resolve()
        .then(() => call.runHere(keyed))
        .catch(() => {})
        .then(() => call.settle({ result: new Redirection(second) }));
    },
    cancel: () => {},
  };
  const server = serveHere([], { modules: { attach: shareWith(first) } });
  await server.result("append", { entries: [user("x")] });
  expect(passed.map(({ key }) => key)).toEqual([undefined, "given"]);
});
