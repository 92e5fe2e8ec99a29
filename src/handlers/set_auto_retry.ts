import * as z from "zod";
import { defineSettingCommand } from "./shared/agent-commands.ts";

export default defineSettingCommand(
  "set_auto_retry",
  "Whether Pi repeats a failed model request; kept while the process lives, without effect here.",
  "autoRetryEnabled",
  "enabled",
  z.boolean(),
  true,
);
