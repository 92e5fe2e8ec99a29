import { promptParams, unsupported } from "./unsupported.ts";

export default unsupported(
  "prompt",
  promptParams,
  "call your model with what get_messages answers, and store what was said with append.",
);
