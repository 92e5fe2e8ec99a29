import * as z from "zod";
import { defineSettingCommand } from "./shared/agent-commands.ts";

export default defineSettingCommand(
  "set_steering_mode",
  "How Pi hands over steering messages; kept while the process lives and shown in get_state.",
  "steeringMode",
  "mode",
  z.enum(["all", "one-at-a-time"]),
  "all",
);
