// Finds and runs Pi: 0.73.1 is installed from npm; the published tarball of 1.5.2 runs as it is, under a Node of 22.19
// or newer.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const OLD = "@mariozechner/pi-coding-agent";
const NEW = "@earendil-works/pi-coding-agent";

/** Returns true if Pi 1.5.2 runs under a Node. */
function isModern(node) {
  const { stdout } = spawnSync(node, ["-p", "process.versions.node"], { encoding: "utf8" });
  const [major, minor] = (stdout ?? "0.0").split(".").map(Number);
  return major > 22 || (major === 22 && minor >= 19);
}

/** Pi 1.5.2, if a Node that runs it is named or is this one. */
export function findModern({ node = process.execPath, pi15 }, home) {
  if (!isModern(node)) return undefined;
  let folder = pi15;
  if (!folder) {
    folder = join(home, "pi-1.5.2");
    mkdirSync(folder);
    const tarball = execFileSync("npm", ["pack", "--silent", `${NEW}@1.5.2`], { cwd: folder, encoding: "utf8" });
    execFileSync("tar", ["-xzf", join(folder, tarball.trim()), "-C", folder]);
    folder = join(folder, "package");
  }
  const bundle = join(folder, "dist/bundle");
  return { name: "Pi 1.5.2", node, cli: join(bundle, "cli.js"), library: join(bundle, "index.js") };
}

/**
 * The Pis that can run here: each with its program, its library and its Node. `node` runs the newer one, if this
 * Node is too old for it; `pi` and `pi15` are folders of packages that are there already.
 */
export function findPis({ node, pi, pi15 }, home) {
  const pis = [];
  let old = pi;
  if (!old) {
    const folder = join(home, "pi-0.73.1");
    mkdirSync(folder);
    execFileSync("npm", ["install", "--silent", "--ignore-scripts", "--prefix", folder, `${OLD}@0.73.1`]);
    old = join(folder, "node_modules", OLD);
  }
  pis.push({
    name: "Pi 0.73.1",
    node: process.execPath,
    cli: join(old, "dist/cli.js"),
    library: join(old, "dist/index.js"),
  });
  const modern = findModern({ node, pi15 }, home);
  if (modern) pis.push(modern);
  for (const { name, cli } of pis) if (!existsSync(cli)) throw new Error(`${name} is not at ${cli}.`);
  return pis;
}

/** Arguments that make Pi serve its line protocol. */
export const getServingArguments = (pi, ...more) => [pi.cli, "--mode", "rpc", "--offline", ...more];

export const makePiRequest = (id, type, params = {}) => JSON.stringify({ id: String(id), type, ...params });
