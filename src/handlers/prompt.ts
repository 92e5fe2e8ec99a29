import { definePromptingCommand } from "./shared/agent-commands.ts";

export default definePromptingCommand("prompt");
