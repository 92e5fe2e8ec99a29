import { neutral } from "./shared/agent-commands.ts";

export default neutral("abort", "Stops the agent, as Pi does; nothing runs here that could be stopped.");
