import * as z from "zod";
import { unsupported } from "./unsupported.ts";

export default unsupported(
  "compact",
  { customInstructions: z.string().optional() },
  "have your model write the summary, and store it with compact_append.",
);
