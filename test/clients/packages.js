/** The clients and agents from npm, pinned, in a folder of their own: nothing of them is in the project. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SDK = "@agentclientprotocol/sdk";
/** Pi changed its name between the two. Where the newest cannot be installed whole, the next one takes its place. */
const PIS = {
  old: { name: "@mariozechner/pi-coding-agent", versions: ["0.73.1"] },
  new: { name: "@earendil-works/pi-coding-agent", versions: ["1.5.2", "0.87.1"] },
};
const OTHERS = { "pi-acp": "0.0.34", [SDK]: "2.4.0" };
/** Pi needs a newer Node than this project does. */
const NODE = { name: `node-${process.platform}-${process.arch}`, version: "24" };

/** Installs everything. Returns where it is, and what could not be had. */
export function install() {
  const kept = process.env.PI_CLIENTS_CACHE;
  const root = kept ?? mkdtempSync(join(tmpdir(), "pi-clients-"));
  const notes = [];
  const pis = {};
  for (const [key, { name, versions }] of Object.entries(PIS))
    for (const version of versions) {
      const folder = installed(root, `${key}-${version}`, { [name]: version });
      if (typeof folder === "string") {
        pis[key] = { version, folder: join(folder, "node_modules", name) };
        break;
      }
      notes.push(`${name} ${version} could not be installed: ${folder.why}`);
    }
  const others = installed(root, "others", OTHERS);
  if (typeof others !== "string") throw new Error(`The clients could not be installed: ${others.why}`);
  return {
    root: kept ? undefined : root,
    pis,
    others: join(others, "node_modules"),
    node: nodeFor(root, notes),
    notes,
  };
}

function nodeFor(root, notes) {
  if (Number(process.versions.node.split(".")[0]) >= 24) return process.execPath;
  const folder = installed(root, "node", { [NODE.name]: NODE.version });
  if (typeof folder === "string") return join(folder, "node_modules", NODE.name, "bin", "node");
  notes.push(`Node ${NODE.version} could not be installed: ${folder.why}`);
  return process.execPath;
}

function installed(root, name, dependencies) {
  const folder = join(root, name);
  if (existsSync(join(folder, "done"))) return folder;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, dependencies }));
  try {
    const args = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    execFileSync("npm", args, { cwd: folder, stdio: ["ignore", "ignore", "pipe"], timeout: 300_000 });
    writeFileSync(join(folder, "done"), "");
    return folder;
  } catch (error) {
    const lines = String(error.stderr ?? error.message).split("\n");
    return {
      why: (lines.find((line) => /No matching version|404 {2}The requested/.test(line)) ?? lines[0]).replace(
        /^npm error (?:notarget|404)\s*/,
        "",
      ),
    };
  }
}
