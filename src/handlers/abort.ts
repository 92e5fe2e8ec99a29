import { neutral } from "./shared/no-op.ts";

export default neutral("abort", "Stops the agent, as Pi does; nothing runs here that could be stopped.");
