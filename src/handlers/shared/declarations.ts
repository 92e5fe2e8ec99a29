/** All declarations of the wire and the files in one value, for the documents that are made from it. */

import { FAILURES } from "../../core/failure.ts";
import { draft, entryTypes, header, message, messageRoles } from "../../core/format/schemas.ts";
import { commonParams } from "./command.ts";
import { eventBase, eventDeclarations } from "./events.ts";
import { hookDeclarations } from "./hooks.ts";
import { messageResult as contextMessage, entry } from "./shapes.ts";
import { commandTable } from "./table.ts";

export const declarations = {
  commands: commandTable,
  commonParams,
  events: eventDeclarations,
  eventBase,
  hooks: hookDeclarations,
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
