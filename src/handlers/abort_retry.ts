import { defineNeutralCommand } from "./shared/agent-commands.ts";

export default defineNeutralCommand("abort_retry", "Stops Pi's retry of a model request; none is made here.");
