/** kill -9 in the middle of migrations, rollbacks and undos, beside a program that knows no pointer. */

import { killBeside } from "../support/beside-pi.ts";
import { soak } from "../support/soak.ts";

soak("beside-pi", async (random) => ({ ...(await killBeside(random, 30)) }));
