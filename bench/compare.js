// Compares two builds, or two files of figures.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { formatNumber, formatTable, isClearlyMore, toFigure } from "./measure.js";
import { home, node, options, quick, root, runs } from "./options.js";

/** Turns that measure two commits one after the other, so that the load of the machine meets both. */
const TURNS = 5;

/** Returns an earlier build of ours: that of a folder, or of a commit, which is built next to this one. */
export function getBuild(commit) {
  const folder = existsSync(join(commit, "dist")) ? resolve(commit) : buildNextToThis(commit);
  const name = basename(folder);
  return {
    ...{ name, state: join(home, `state-${name}`) },
    program: join(folder, "dist/bin/pi-session-server.js"),
    library: join(folder, "dist/lib/index.js"),
  };
}

function buildNextToThis(commit) {
  const folder = join(home, commit.replace(/\W/g, "-"));
  mkdirSync(folder);
  const archive = execFileSync("git", ["archive", commit], { cwd: root, maxBuffer: 1 << 30 });
  execFileSync("tar", ["-x", "-C", folder], { input: archive });
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  execFileSync(node, ["scripts/build.js"], { cwd: folder, stdio: "ignore" });
  return folder;
}

/** The figures of two builds, each measured in every turn. */
export function measureInTurns(...builds) {
  const script = fileURLToPath(new URL("run.js", import.meta.url));
  const turns = Math.min(TURNS, runs);
  const more = [...(quick ? ["--quick"] : []), "--runs", String(Math.ceil(runs / turns)), "--rows", options.rows];
  const found = builds.map(() => []);
  for (let turn = 0; turn < turns; turn++)
    for (const [index, build] of builds.entries()) {
      const args = [script, "--json", ...more, "--program", build.program, "--library", build.library];
      found[index].push(JSON.parse(execFileSync(node, args, { encoding: "utf8", maxBuffer: 1 << 28 })));
    }
  return found.map(together);
}

/** The figures of several runs as those of one. */
function together(results) {
  const valuesOf = (what) => results.flatMap(({ rows }) => rows.find((row) => row.what === what)?.ours.values ?? []);
  const rows = results[0].rows.map((row) => ({ ...row, ours: toFigure(valuesOf(row.what)) }));
  return { ...results[0], load: Math.max(...results.map(({ load }) => load)), runs, rows };
}

export const readResults = (file) => JSON.parse(readFileSync(file, "utf8"));

export function compare(before, after) {
  const rowsOf = ({ rows: list }) => new Map(list.map((row) => [row.what, row]));
  const old = rowsOf(before);
  const lines = [];
  for (const [what, row] of rowsOf(after)) {
    const other = old.get(what);
    if (!other) continue;
    const ratio = row.ours.median / other.ours.median;
    const better = row.more ? ratio > 1 : ratio < 1;
    // Within what either of them varies by itself there is nothing to say.
    const apart = row.ours.runs > 1 && (isClearlyMore(row.ours, other.ours) || isClearlyMore(other.ours, row.ours));
    lines.push([
      what,
      `${formatNumber(other.ours.median)} ${row.unit}`,
      `${formatNumber(row.ours.median)} ${row.unit}`,
      formatNumber(ratio),
      apart ? (better ? "better" : "worse") : "",
    ]);
  }
  console.log(formatTable(["what", "before", "after", "ratio", ""], lines));
}
