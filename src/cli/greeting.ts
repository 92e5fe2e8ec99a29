/** The words to a person who started the server by hand, in a terminal, where it waits for messages. */

import { VERSION } from "../version.ts";

export const GREETING = `pi-session-server ${VERSION} waits for messages of JSON-RPC 2.0 here, one per line. Paste this to see one answered:

{"jsonrpc":"2.0","id":1,"method":"list_sessions","params":{"limit":3}}

Usually an agent or an editor starts it and talks to it. For people there are

  pi-session-server browse    to look at sessions and pick one
  pi-session-server --help    for everything else

Ctrl+D ends it.

`;
