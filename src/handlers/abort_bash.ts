import { neutral } from "./shared/agent-commands.ts";

export default neutral("abort_bash", "Stops the shell command that Pi runs for its user; none runs here.");
