/** Rules about `initialize`. */

import { isRecord } from "../dialect.ts";
import type { Theme } from "../rule.ts";

const LISTS = ["commands", "events", "hooks", "framings", "dialects", "stores", "formats"];

export const introductionTheme: Theme = {
  name: "introduction",
  rules: [
    {
      name: "initialize-result",
      title: "initialize returns version 1 of the protocol, who the server is, and what it can do.",
      source: "initialize",
      async run(context) {
        const { introduction: reply } = await context.hooked();
        const { protocolVersion, serverInfo, capabilities } = reply?.result ?? {};
        reply?.must(protocolVersion === 1, "protocolVersion 1");
        const isNamed = typeof serverInfo?.name === "string" && typeof serverInfo?.version === "string";
        reply?.must(isNamed, "serverInfo with name and version");
        for (const name of LISTS) reply?.must(Array.isArray(capabilities?.[name]), `the list capabilities.${name}`);
        reply?.must(isRecord(capabilities?.limits), "the object capabilities.limits");
        const { framing, dialect } = context.combination;
        reply?.must(capabilities.framings.includes(framing), `the framing ${framing} in the list`);
        reply?.must(capabilities.dialects.includes(dialect), `the dialect ${dialect} in the list`);
      },
    },
    {
      name: "initialize-state",
      title: "initialize returns the state of the session.",
      source: "initialize",
      async run(context) {
        const conversation = await context.hooked();
        await conversation.settle();
        const start = conversation.opening.find(({ name }) => name === "session_start");
        const { introduction: reply } = conversation;
        const sessionId = start?.value.sessionId;
        reply?.must(typeof sessionId === "string", "session_start with the sessionId after it");
        reply?.must(reply.result.state?.sessionId === sessionId, `the state of the session ${sessionId}`);
      },
    },
    {
      name: "initialize-once",
      title: "A second initialize is refused as an invalid_request.",
      source: "Errors",
      async run(context) {
        const conversation = await context.hooked();
        (await conversation.ask("initialize", { protocolVersion: 1 })).mustFail("invalid_request");
        void (await conversation.ask("get_state")).result;
      },
    },
    {
      name: "initialize-optional",
      title: "A host need not send initialize.",
      source: "initialize",
      async run(context) {
        const conversation = await context.plain();
        void (await conversation.ask("get_state")).result;
      },
    },
  ],
};
