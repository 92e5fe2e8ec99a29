import { neutral } from "./shared/agent-commands.ts";

export default neutral("abort_retry", "Stops Pi's retry of a model request; none is made here.");
