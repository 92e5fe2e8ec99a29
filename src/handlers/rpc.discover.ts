import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "rpc.discover",
  summary: "Describes every command, event and failure as an OpenRPC document.",
  effect: "server",
  repeatable: true,
  result: () =>
    z
      .looseObject({
        openrpc: z.string(),
        info: z.looseObject({ title: z.string(), version: z.string() }),
        methods: z.array(z.looseObject({ name: z.string() })),
      })
      .describe("an OpenRPC 1.3 document; events are under x-events"),
  example: {
    params: {},
    result: {
      openrpc: "1.3.2",
      info: { title: "pi-session-server", version: "0.1.0" },
      methods: [{ name: "get_state" }],
    },
  },
  run: (context) => context.server.discover() as Promise<never>,
});
