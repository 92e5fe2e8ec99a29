import { promptParams, unsupported } from "./shared/unsupported.ts";

export default unsupported(
  "steer",
  promptParams,
  "call your model with what get_messages returns, and store its answer with append.",
);
