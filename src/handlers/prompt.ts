import { prompting } from "./shared/unsupported.ts";

export default prompting("prompt");
