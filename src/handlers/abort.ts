import { defineNeutralCommand } from "./shared/agent-commands.ts";

export default defineNeutralCommand("abort", "Stops the agent, as Pi does; nothing runs here that could be stopped.");
