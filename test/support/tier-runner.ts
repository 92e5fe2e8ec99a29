/** Runs those tests of a file that are of the project's tier, as if the others were not there. */

import { readFileSync } from "node:fs";
import { type RunnerTask, type RunnerTestFile, TestRunner } from "vitest";
import { tierOf, tiersIn } from "./tiers.ts";

export default class TierRunner extends TestRunner {
  override onCollectStart(file: RunnerTestFile): void {
    super.onCollectStart(file);
    const tiers = tiersIn(readFileSync(file.filepath, "utf8"));
    const belongs = (task: RunnerTask): boolean => {
      if (task.type === "suite") {
        task.tasks = task.tasks.filter(belongs);
        return task.tasks.length > 0;
      }
      const tier = tierOf(task.tags);
      if (!tiers.includes(tier))
        throw new Error(`"${task.name}" would never run: the text of its file names no test of the tier ${tier}`);
      return tier === this.config.name;
    };
    // The collection adds tasks with this call, and reports them before any other hook.
    const push = (...tasks: RunnerTask[]): number => Array.prototype.push.apply(file.tasks, tasks.filter(belongs));
    Object.defineProperty(file.tasks, "push", { value: push });
  }
}
