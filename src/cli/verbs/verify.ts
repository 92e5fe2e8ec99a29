import { count, inert } from "../terminal/text.ts";
import { askAbout, DAMAGE, OK, type Result, type Verb } from "../verb.ts";

export default {
  name: "verify",
  meaning: "read every byte and report what is damaged",
  operands: ["<session>"],
  run: askAbout("verify_session"),
  print: ({ ok, damage, unreadableForRust }) => [
    ok ? "The session is sound." : `${count(damage.length, "damaged place", "damaged places")}:`,
    ...damage.map(damageLine),
    ...(unreadableForRust.length === 0
      ? []
      : [`pi_agent_rust skips ${count(unreadableForRust.length, "entry", "entries")} of it and does not write to it.`]),
  ],
  status: ({ ok }) => (ok ? OK : DAMAGE),
} satisfies Verb;

export function damageLine({ kind, line, byteOffset, length, entryId, reason, salvaged, keptAt }: Result): string {
  const where = [
    ...(line > 0 ? [`line ${line}`] : []),
    ...(length > 0 ? [`${length} bytes at ${byteOffset}`] : []),
    ...(entryId === undefined ? [] : [`entry ${inert(entryId)}`]),
  ].join(", ");
  const kept = keptAt === undefined ? "" : `; the bytes are in ${inert(keptAt)}`;
  return `  ${inert(kind)}${where === "" ? "" : ` (${where})`}: ${inert(reason)}${salvaged ? "" : "; lost"}${kept}`;
}
