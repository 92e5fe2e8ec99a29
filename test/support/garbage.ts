/** Collection of garbage at a test's request, for measuring held memory. */

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");

export const collectGarbage = runInNewContext("gc") as () => void;
