import * as z from "zod";
import { defineSettingCommand } from "./shared/agent-commands.ts";

export default defineSettingCommand(
  "set_follow_up_mode",
  "How Pi hands over follow-up messages; kept while the process lives and shown in get_state.",
  "followUpMode",
  "mode",
  z.enum(["all", "one-at-a-time"]),
  "all",
);
