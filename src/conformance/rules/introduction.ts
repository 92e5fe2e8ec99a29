/** Rules about `initialize`. */

import { isRecord } from "../dialect.ts";
import { defineTheme, fails } from "../row.ts";

const LISTS = ["commands", "events", "hooks", "framings", "dialects", "stores", "formats"];

export const introductionTheme = defineTheme("introduction", [
  {
    name: "initialize-result",
    title: "initialize returns version 1 of the protocol, who the server is, and what it can do.",
    source: "initialize",
    on: "hooked",
    async check({ introduction: reply }, _ids, { combination: { framing, dialect } }) {
      const { protocolVersion, serverInfo, capabilities } = reply?.result ?? {};
      reply?.must(protocolVersion === 1, "protocolVersion 1");
      const isNamed = typeof serverInfo?.name === "string" && typeof serverInfo?.version === "string";
      reply?.must(isNamed, "serverInfo with name and version");
      for (const name of LISTS) reply?.must(Array.isArray(capabilities?.[name]), `the list capabilities.${name}`);
      reply?.must(isRecord(capabilities?.limits), "the object capabilities.limits");
      reply?.must(capabilities.framings.includes(framing), `the framing ${framing} in the list`);
      reply?.must(capabilities.dialects.includes(dialect), `the dialect ${dialect} in the list`);
    },
  },
  {
    name: "initialize-state",
    title: "initialize returns the state of the session.",
    source: "initialize",
    on: "hooked",
    async check(conversation) {
      await conversation.settle();
      const { introduction: reply, opening } = conversation;
      const sessionId = opening.find(({ name }) => name === "session_start")?.value.sessionId;
      reply?.must(typeof sessionId === "string", "session_start with the sessionId after it");
      reply?.must(reply.result.state?.sessionId === sessionId, `the state of the session ${sessionId}`);
    },
  },
  {
    name: "initialize-once",
    title: "A second initialize is refused as an invalid_request.",
    source: "Errors",
    on: "hooked",
    steps: [["initialize", { protocolVersion: 1 }, fails("invalid_request")], ["get_state"]],
  },
]);
