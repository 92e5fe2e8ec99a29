/** Redaction, a file of its own in the built program: nothing but a redacted export loads it. */

export { type KindCounts, LineRedactor } from "./line-redactor.ts";
