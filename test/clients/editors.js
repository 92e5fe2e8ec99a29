/** Editors whose clients are in no registry: their own tests, from a folder that PI_CLIENTS_EDITORS names. */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Steps } from "./steps.js";

/** The clients, where they are in that folder, and how they begin a session. */
export const EDITORS = [
  {
    name: "Emacs, pi-coding-agent",
    folder: "pi-coding-agent",
    program: "emacs",
    args: (folder, command) => [
      ...["--batch", "-L", folder, "--eval", `(setq pi-coding-agent-executable ${JSON.stringify(command)})`],
      ...["-l", "pi-coding-agent", "--eval", '(progn (require \'pi-coding-agent) (message "loaded"))'],
    ],
  },
  {
    name: "Neovim, pi.nvim",
    folder: "pi.nvim",
    program: "nvim",
    args: (folder, command) => [
      ...["--headless", "--clean", "--cmd", `set rtp+=${folder}`],
      ...["-c", `lua require("pi").setup({ bin = ${JSON.stringify(command)} })`, "-c", "qa!"],
    ],
  },
];

/** Drives an editor. Returns why it is left out, or the steps. */
export async function driveEditor({ folder, program, args }, { command, cwd, env }) {
  const root = process.env.PI_CLIENTS_EDITORS;
  if (!root) return "PI_CLIENTS_EDITORS names no folder with the clients of editors";
  const place = join(root, folder);
  if (!existsSync(place)) return `there is no ${folder} in the folder of PI_CLIENTS_EDITORS`;
  const steps = new Steps();
  await steps.take("its client is loaded", async () => {
    const { error, status, stderr } = spawnSync(program, args(place, command), {
      cwd,
      env,
      encoding: "utf8",
      timeout: 25_000,
    });
    if (error) throw error;
    if (status !== 0) throw new Error(stderr.trim().split("\n").at(-1) ?? `status ${status}`);
  });
  return steps;
}
