// Writes the results of a run as the tables of docs/figures.md and README.md, which are never written by hand.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { formatNumber, formatTable, isClearlyMore } from "./measure.js";

/** Beginnings of the rows that are in the README; the other rows are in docs/figures.md only. */
export const README_ROWS = [
  "spawn to first reply",
  "switch_session, 100,000 entries",
  "fork at the last message",
  "durable append over the wire",
  "list 1,000 sessions",
  // Rows in which Pi 0.73.1 is faster.
  "get_fork_messages, 100,000 entries",
];

const spread = ({ low, high, runs }) => (runs > 1 ? ` (${formatNumber(low)}-${formatNumber(high)})` : "");

/** Returns a line for each Pi and each earlier build: the rows where it was faster, with the ratio. */
function lostRows(names, rows) {
  return names.map((name) => {
    const compared = rows.filter(({ pis = {} }) => pis[name]);
    const lost = compared.filter(({ more, ours, pis: { [name]: theirs } }) =>
      // Overlapping figures prove nothing.
      more ? isClearlyMore(theirs, ours) : isClearlyMore(ours, theirs),
    );
    const list = lost.map(({ what, ours, pis }) => `${what} (${formatNumber(ours.median / pis[name].median)})`);
    const rest = list.length === 0 ? "." : `: ${list.join("; ")}.`;
    return `Slower than ${name} outside the spread in ${lost.length} of ${compared.length} rows${rest}`;
  });
}

/** Returns the rows with whole names: `- again` has the name of the row before it, too. */
function withWholeNames(rows) {
  let before = "";
  return rows.map((row) => {
    if (!row.what.startsWith("- ")) before = row.what;
    return row.what.startsWith("- ") ? { ...row, what: `${before}, ${row.what.replace(/^[- ]+/, "")}` } : row;
  });
}

/** Returns the results of a run as text: how they were measured, the head of the table, its rows, and which are lost. */
export function toFigures({ node, processors, load, runs, rows }) {
  const names = [...new Set(rows.flatMap(({ pis = {} }) => Object.keys(pis)))];
  return {
    lost: lostRows(names, withWholeNames(rows)),
    how: `Node ${node}, ${processors} processors, load ${load.toFixed(1)} before, median of ${runs} (lowest-highest)`,
    head: ["what", "ours", "goal", "against", "ratio", ...names.flatMap((name) => [name, "ratio"])],
    rows: rows.map(({ what, unit, goal = "", ours, against, pis = {} }) => [
      what,
      `${formatNumber(ours.median)} ${unit}${spread(ours)}`,
      goal,
      against ? `${against.what} ${formatNumber(against.median)} ${unit}` : "",
      against?.median === undefined ? "" : formatNumber(ours.median / against.median),
      ...names.flatMap((name) =>
        pis[name]
          ? [`${formatNumber(pis[name].median)} ${unit}`, formatNumber(ours.median / pis[name].median)]
          : ["", ""],
      ),
    ]),
  };
}

/** Returns the name of the place in docs/figures.md for runs of this Node, from `node` of the results. */
export const getPlace = (node) => `figures of Node ${/\d+/.exec(node)[0]}`;

/** The place of the README. */
const README_PLACE = "figures";

function between(place) {
  return new RegExp(`(?<=<!-- ${place} -->\n)[\\s\\S]*?(?=<!-- /${place} -->)`);
}

/** Returns a document with these figures between its markers; throws when it has none. */
export function withFigures(text, place, { how, head, rows, lost = [] }) {
  if (!between(place).test(text))
    throw new Error(`The document has no <!-- ${place} --> and <!-- /${place} --> around a table.`);
  return text.replace(between(place), () => `\n${[how, formatTable(head, rows), ...lost].join("\n\n")}\n\n`);
}

/** Writes figures between their markers in a document; throws when it has none. */
export function replaceFigures(document, place, figures) {
  writeFileSync(document, withFigures(readFileSync(document, "utf8"), place, figures));
}

/** Returns the figures between the markers of a document; throws when it has none. */
export function findFigures(text, place) {
  const [how, lines, ...lost] = between(place).exec(text)?.[0].trim().split("\n\n") ?? [];
  const [head, , ...rows] = lines?.split("\n") ?? [];
  if (head === undefined) throw new Error(`The document has no figures between <!-- ${place} --> and its end.`);
  const cells = (line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim());
  return { how, head: cells(head), rows: rows.map(cells), lost };
}

/**
 * Returns the README with its rows as docs/figures.md has them at a place: what, ours, and each Pi with its ratio; throws
 * when a row is missing there.
 */
export function withReadmeFigures(readme, document, place) {
  const { how, head, rows } = findFigures(document, place);
  const kept = README_ROWS.map((name) => rows.find(([what]) => what.startsWith(name)));
  const missing = README_ROWS.filter((_, n) => kept[n] === undefined);
  if (missing.length > 0) throw new Error(`Not measured, but in the README's table: ${missing.join("; ")}.`);
  // The names of other programs are followed by their ratios.
  const isShown = (_, at) => at < 2 || head[at].startsWith("Pi ") || head[at - 1].startsWith("Pi ");
  return withFigures(readme, README_PLACE, {
    how,
    head: head.filter(isShown),
    rows: kept.map((cells) => cells.filter(isShown)),
  });
}

/** Writes the results of a run into docs/figures.md of a folder and also into README.md, or nothing where one does not fit. */
export function writeFigures(results, folder, { withReadme }) {
  const place = getPlace(results.node);
  const document = join(folder, "docs/figures.md");
  const text = withFigures(readFileSync(document, "utf8"), place, toFigures(results));
  const readme = join(folder, "README.md");
  const readmeText = withReadme && withReadmeFigures(readFileSync(readme, "utf8"), text, place);
  writeFileSync(document, text);
  if (withReadme) writeFileSync(readme, readmeText);
}
