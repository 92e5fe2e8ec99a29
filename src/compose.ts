/** The optional modules. Without the folder of one, its lines here and the folder of its tests, the rest compiles and works. */

import * as agents from "./modules/agents/index.ts";
import * as attach from "./modules/attach/index.ts";
import * as fleet from "./modules/fleet/index.ts";
import * as foreign from "./modules/foreign/index.ts";
import * as recall from "./modules/recall/index.ts";
import type { AgentsModule } from "./server/agents-module.ts";
import type { AttachModule } from "./server/attach-module.ts";
import type { RecallModule } from "./server/recall-module.ts";
import type { FleetModule } from "./storage/fleet-module.ts";
import type { ForeignModule } from "./storage/foreign-module.ts";

export interface Modules {
  readonly agents?: AgentsModule;
  readonly attach?: AttachModule;
  readonly fleet?: FleetModule;
  readonly foreign?: ForeignModule;
  readonly recall?: RecallModule;
}

export const modules: Modules = {
  agents,
  attach,
  fleet,
  foreign,
  recall,
};
