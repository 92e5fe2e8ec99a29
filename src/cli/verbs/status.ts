import { inert } from "../terminal/text.ts";
import { DAMAGE, OK, point, type Result, type Verb } from "../verb.ts";

const FORMATS: Record<string, string> = {
  native_v2: "Session Store V2",
  jsonl_v3: "A JSONL file",
  sqlite_v1: "An SQLite database of pi_agent_rust",
};

export default {
  name: "status",
  meaning: "print which store holds a session, and the state of its migration",
  operands: ["<session>"],
  more: "The exit status is 3 if a migration or rollback was interrupted; migrate or rollback completes it.",
  async run(asking, { operands }) {
    const where = await point(asking, operands[0]);
    return asking.ask("migration_status", where);
  },
  print: ({ active, state, phase, reason, snapshotPath, interrupted, events }) => [
    `${FORMATS[active]}, ${inert(state)}${phase === null ? "" : ` (${inert(phase)})`}.`,
    ...(reason === null ? [] : [`Reason: ${inert(reason)}.`]),
    ...(snapshotPath === null ? [] : [`The session file is kept as ${inert(snapshotPath)}.`]),
    ...(active === "native_v2" ? ["Pi does not see it there; rollback makes its file the session again."] : []),
    ...(interrupted ? ["A migration or rollback was interrupted; rollback, or migrate --apply, completes it."] : []),
    ...events.map(
      ({ at, phase: step, outcome }: Result) => `  ${inert(at)}  ${inert(step).padEnd(16)} ${inert(outcome)}`,
    ),
  ],
  status: ({ interrupted }) => (interrupted ? DAMAGE : OK),
} satisfies Verb;
