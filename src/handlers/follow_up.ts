import { prompting } from "./shared/unsupported.ts";

export default prompting("follow_up");
