import { promptParams, unsupported } from "./shared/unsupported.ts";

export default unsupported(
  "steer",
  promptParams,
  "call your model with what get_messages answers, and store what was said with append.",
);
