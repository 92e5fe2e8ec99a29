import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { sharedClient } from "./shared/shapes.ts";

export default defineCommand({
  name: "list_clients",
  summary:
    "The clients that have this session open and share it, this one among them: hosts, each with a server of its own. " +
    "client_joined and client_left report others that come and go.",
  effect: "read",
  showsClients: true,
  result: () =>
    z.object({
      clients: z.array(
        sharedClient().extend({
          isHolder: z.boolean().describe("whether its server has the session's lock, and does what all of them write"),
          isSelf: z.boolean().describe("whether it is this host"),
        }),
      ),
    }),
  example: {
    params: {},
    result: {
      clients: [
        {
          id: "01991f6e-2b1d-7c3e-b0a4-0242ac120007",
          name: "my-editor",
          version: "1.0.0",
          pid: 4711,
          since: "2026-01-24T16:22:26.831Z",
          isHolder: true,
          isSelf: true,
        },
        {
          id: "01991f6e-5f00-7d11-8c2b-0242ac120007",
          name: "nightly-agent",
          pid: 4812,
          since: "2026-01-24T17:02:11.040Z",
          isHolder: false,
          isSelf: false,
        },
      ],
    },
  },
  run: (context) => ({ clients: context.clientsOf(context.session) }),
});
