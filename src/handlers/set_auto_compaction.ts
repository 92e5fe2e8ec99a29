import * as z from "zod";
import { defineSettingCommand } from "./shared/agent-commands.ts";

export default defineSettingCommand(
  "set_auto_compaction",
  "Whether Pi compacts by itself; kept while the process lives and shown in get_state, without effect here.",
  "autoCompactionEnabled",
  "enabled",
  z.boolean(),
  true,
);
