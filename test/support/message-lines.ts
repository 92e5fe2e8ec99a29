/** Lines of messages as no writer writes them, and JSON all the same: what looks for members in bytes must not be misled. */

import type { Random } from "./random.ts";

const NAMES = ["role", "content", "toolName", "isError", "exitCode", "cancelled", "stopReason", "command", "timestamp"];
const ALIKE = ["rolf", "contents", "toolNam", "exitCodes", "cancelleX", "stopReasoX", "role\\u0000", "ro\\u006ce", ""];

const PIECES = [
  "plain words ",
  "é漢😀",
  "\u2028",
  "“…”",
  '}],:{[\\"',
  "\\\\",
  "\\n\\t ",
  "\\/",
  "\\u0041",
  "\\ud800",
  "\\ud83d\\ude00",
];

function string(random: Random): string {
  const times = random.pick([0, 1, 1, 2, 5, 30, random.chance(0.05) ? 3000 : 3]);
  return `"${Array.from({ length: times }, () => random.pick(PIECES)).join("")}"`;
}

function scalar(random: Random): string {
  return random.pick(["true", "false", "null", "0", "-1.5E-7", "1", '"error"', '"user"', '"a"', string(random)]);
}

function value(random: Random, depth = 0): string {
  if (depth > 3 || random.chance(0.5)) return scalar(random);
  if (random.chance(0.02)) return `${"[".repeat(300)}${"]".repeat(300)}`;
  const count = random.int(4);
  if (random.chance(0.4)) return `[${Array.from({ length: count }, () => value(random, depth + 1)).join(",")}]`;
  return object(random, count, [...NAMES, "type", "text", "path"], () => value(random, depth + 1));
}

function space(random: Random): string {
  return random.chance(0.003) ? random.pick([" ", "\t"]) : "";
}

function object(random: Random, count: number, names: readonly string[], made: (name: string) => string): string {
  const members = Array.from({ length: count }, () => {
    const name = random.chance(0.04) ? random.pick(ALIKE) : random.pick(names);
    return `"${name}":${space(random)}${made(name)}`;
  });
  return `{${members.join(",")}}`;
}

function block(random: Random): string {
  if (random.chance(0.1)) return value(random);
  const kind = random.pick([
    '"text"',
    '"text"',
    '"toolCall"',
    '"thinking"',
    random.chance(0.05) ? '"te\\u0078t"' : "1",
  ]);
  const members = [
    `"type":${space(random)}${kind}`,
    `"text":${space(random)}${random.chance(0.9) ? string(random) : value(random)}`,
  ];
  if (kind === '"toolCall"')
    members.push(
      `"name":${random.chance(0.9) ? string(random) : value(random)}`,
      `"arguments":${object(random, random.int(4), ["path", "command", "cmd", "n", "edits", "0"], () => value(random))}`,
    );
  if (random.chance(0.1)) members.push(random.pick(['"type":"text"', '"text":"again"', '"type":"toolCall"']));
  return `{${(random.chance(0.3) ? members.reverse() : members).join(",")}}`;
}

function content(random: Random): string {
  if (random.chance(0.3)) return string(random);
  if (random.chance(0.05)) return value(random);
  return `[${Array.from({ length: random.int(4) }, () => block(random)).join(",")}]`;
}

/** Returns the line of a message, usual or not. */
export function hostileMessageLine(random: Random, id: string, parentId: string | null): string {
  const others = object(random, random.int(5), NAMES, (name) => (name === "content" ? content(random) : value(random)));
  const role = random.pick(["user", "user", "assistant", "toolResult", "bashExecution", "odd"]);
  const message = `{"role":"${role}","content":${space(random)}${content(random)}${others === "{}" ? "" : `,${others.slice(1, -1)}`}}`;
  const head = `"type":"message","id":"${id}","parentId":${JSON.stringify(parentId)},"timestamp":${space(random)}${scalar(random)}`;
  const more = random.chance(0.05)
    ? `,${random.pick(['"name":"n"', '"summary":"s"', '"timestamp":"2"', '"content":"c"'])}`
    : "";
  const spelled = random.chance(0.03) ? message.replace('"role"', '"ro\\u006ce"') : message;
  return random.chance(0.1) ? `{${head},"message":${spelled}${more}}` : `{${head}${more},"message":${spelled}}`;
}
