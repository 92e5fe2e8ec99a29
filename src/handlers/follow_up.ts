import { definePromptingCommand } from "./shared/agent-commands.ts";

export default definePromptingCommand("follow_up");
