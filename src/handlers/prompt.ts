import { promptParams, unsupported } from "./shared/unsupported.ts";

export default unsupported(
  "prompt",
  promptParams,
  "call your model with what get_messages answers, and store what was said with append.",
);
