/** All declarations of the wire and the files in one value, for the documents that are made from it. */

import { FAILURES } from "../../core/failure.ts";
import { draft, entryTypes, header, message, messageRoles } from "../../core/format/schemas.ts";
import { commonParams } from "./command.ts";
import { eventBase, events } from "./events.ts";
import { hooks } from "./hooks.ts";
import { message as contextMessage, entry } from "./shapes.ts";
import { table } from "./table.ts";

export const declarations = {
  commands: table,
  commonParams,
  events,
  eventBase,
  hooks,
  failures: FAILURES,
  header,
  entry,
  draft,
  entryTypes,
  message,
  contextMessage,
  messageRoles,
} as const;

export type Declarations = typeof declarations;
