import { defineNeutralCommand } from "./shared/agent-commands.ts";

export default defineNeutralCommand("abort_bash", "Stops the shell command that Pi runs for its user; none runs here.");
