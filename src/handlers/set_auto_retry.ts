import * as z from "zod";
import { setting } from "./shared/agent-commands.ts";

export default setting(
  "set_auto_retry",
  "Whether Pi repeats a failed model request; kept while the process lives, without effect here.",
  "autoRetryEnabled",
  "enabled",
  z.boolean(),
  true,
);
