import { prompting } from "./shared/agent-commands.ts";

export default prompting("prompt");
