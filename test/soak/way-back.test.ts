/** Sessions of ours to Claude Code and Codex and back: sound ones come back the same, all others as those can be read. */

import { expect } from "vitest";
import { damagedLines, foreignSession, requireSound } from "../modules/foreign/support/checks.ts";
import { SessionMaker } from "../modules/foreign/support/ours.ts";
import { contextSaid, openText, pathsSaid, requireResumable } from "../modules/foreign/support/round-trip.ts";
import { soak } from "../support/soak.ts";

soak("way-back", async (random) => {
  const done = { sessions: 0, sound: 0, damaged: 0, entries: 0, derived: 0, dropped: 0 };
  for (const agent of ["claude", "codex"] as const)
    for (const kind of ["sound", "strange", "damaged"] as const) {
      const { lines, text } = new SessionMaker(random, agent, kind !== "sound").make(3 + random.int(60));
      const bytes = Buffer.concat([Buffer.from(`${lines[0]}\n`), damagedLines(random, lines.slice(1))]);
      const session = openText(kind === "damaged" ? bytes : text);
      const { report, sessionId, text: made } = requireResumable(agent, session);
      done.sessions++;
      done.entries += report.records;
      for (const { derived, dropped } of report.kinds) {
        done.derived += derived;
        done.dropped += dropped;
      }
      if (kind === "damaged") done.damaged++;
      if (kind === "sound" && made !== "") {
        done.sound++;
        const back = foreignSession(made, `/elsewhere/${sessionId}.jsonl`);
        requireSound(back);
        // If no message is on the way to the leaf, Claude Code continues another one.
        const said = contextSaid(agent, session);
        if (said.length > 0) expect(contextSaid(agent, back)).toEqual(said);
        if (agent === "claude") expect(pathsSaid(agent, back)).toEqual(pathsSaid(agent, session));
        back.close();
      }
      session.close();
    }
  return done;
});
