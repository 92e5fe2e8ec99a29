/** Pi behind an editor: a process for each session in which the person prompts, and what is chosen there. */

import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import { stringOf } from "../../core/format/message.ts";
import type { Session } from "../../core/session/session.ts";
import type { Command } from "../../handlers/shared/command.ts";
import type { AgentBehind, AgentReply, AgentSession, PromptBlock, Telling } from "../acp/agent.ts";
import { AcpError, atWork, INVALID_PARAMS, REFUSED } from "../acp/errors.ts";
import type { AgentGate } from "../dispatch/agent-gate.ts";
import type { AgentMeans, ServerEnds } from "./joining.ts";
import type { PiReply } from "./pi-lines.ts";
import {
  commandsOf,
  type InForce,
  levelsOf,
  MODEL,
  modelName,
  type PiOffer,
  settingsOf,
  THINKING,
} from "./pi-offer.ts";
import { PiSeat } from "./pi-seat.ts";

/** Processes that are kept though they do nothing; of more, those are ended that were used longest ago. */
const MAX_IDLE = 8;
/** Milliseconds for which an editor waits for what the agent offers when it opens a session. */
const OFFERED_WITHIN = 5000;

export class EditorAgents implements AgentBehind, AgentGate {
  readonly promptCapabilities = { image: true, audio: false, embeddedContext: true };
  private readonly ends: ServerEnds;
  private readonly means: AgentMeans;
  /** Those that were used last are at the end. */
  private readonly seats = new Map<string, PiSeat>();
  /** Seats that are being given up. */
  private readonly leaving = new Map<string, Promise<void>>();
  /** The offers of Pi, by directory. */
  private readonly offers = new Map<string, Promise<PiOffer>>();
  /** Sessions whose settings came too late for the reply. */
  private readonly late = new Map<string, Promise<AgentReply>>();
  private isEnding = false;

  constructor(ends: ServerEnds, means: AgentMeans) {
    this.ends = ends;
    this.means = means;
  }

  // --- processes -----------------------------------------------------------------------------------------------

  private async seatOf(sessionId: string): Promise<PiSeat> {
    for (let left = this.leaving.get(sessionId); left; left = this.leaving.get(sessionId)) await left;
    const seat = this.seats.get(sessionId) ?? new PiSeat(sessionId, this.ends, this.means);
    this.seats.delete(sessionId);
    this.seats.set(sessionId, seat);
    if (this.isEnding) await seat.end();
    this.dropIdle(seat);
    return seat;
  }

  /** Ends processes that do nothing, if there are many. */
  private dropIdle(but: PiSeat): void {
    const idle = [...this.seats.values()].filter((seat) => seat !== but && !seat.isAtWork && seat.agent.isRunning);
    for (const seat of idle.slice(0, Math.max(0, idle.length - MAX_IDLE))) void this.leave(seat);
  }

  private leave(seat: PiSeat): Promise<void> {
    const { sessionId } = seat;
    this.seats.delete(sessionId);
    const left = seat.end().finally(() => this.leaving.delete(sessionId));
    this.leaving.set(sessionId, left);
    return left;
  }

  /** Ends all agents, because the client has gone. */
  async end(): Promise<void> {
    this.isEnding = true;
    await Promise.all([...[...this.seats.values()].map((seat) => seat.end()), ...this.leaving.values()]);
  }

  /** Goes on taking what agents say, when the host reads again. */
  resume(): void {
    for (const { agent } of this.seats.values()) agent.resume();
  }

  /** Whether an agent does not read what it was sent. */
  get isFull(): boolean {
    return [...this.seats.values()].some(({ agent }) => agent.isFull);
  }

  // --- calls beside them ---------------------------------------------------------------------------------------

  mayHaveWritten(session: Session, command: Command): boolean {
    return this.seats.get(session.id)?.agent.mayHaveWritten(session, command) === true;
  }

  before(command: Command, session: Session): Promise<void> | undefined {
    // A copy stands beside its session, which is not left.
    if (command.effect === "replace") return undefined;
    const seat = this.seats.get(session.id);
    return seat?.isAtWork && command.effect === "write"
      ? Promise.reject(atWork())
      : seat?.agent.before(command, session);
  }

  // --- what is chosen ------------------------------------------------------------------------------------------

  async settings(session: AgentSession, telling: Telling): Promise<AgentReply> {
    const { sessionId } = session;
    const seat = await this.seatOf(sessionId);
    seat.telling = telling;
    seat.onLevel = (level) => this.levelChanged(session, level, telling);
    const told = this.shownSettings(seat, session);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), OFFERED_WITHIN);
    });
    try {
      const settings = await Promise.race([told, late]);
      if (settings) return settings;
      this.late.set(sessionId, told);
      told.catch(() => {});
    } catch {
      // The history can be read without it, and the next prompt says what is wrong.
    } finally {
      clearTimeout(timer);
    }
    return {};
  }

  async introduce(sessionId: string): Promise<void> {
    const { telling, current } = this.seats.get(sessionId) ?? {};
    if (!telling) return;
    const late = this.late.get(sessionId);
    this.late.delete(sessionId);
    if (late) await telling.update({ sessionUpdate: "config_option_update", ...optionsOf(await late) });
    const offer = await this.offers.get(this.means.cwdFor(current ?? null));
    if (offer && offer.commands.length > 0) await telling.update(commandsOf(offer) as never);
  }

  /** Returns what Pi offers in the directory of a session. */
  private async offerFor(seat: PiSeat, { cwd }: AgentSession): Promise<PiOffer> {
    const place = this.means.cwdFor({ cwd } as Session);
    const known = this.offers.get(place);
    if (known) return known;
    const asked = askOffer(seat);
    this.offers.set(place, asked);
    // Whoever asks next may have more luck.
    asked.catch(() => this.offers.delete(place));
    return asked;
  }

  private async inForce(seat: PiSeat, session: AgentSession, offer: PiOffer): Promise<InForce> {
    const { current, agent } = seat;
    if (current && agent.isAt(current)) {
      const state = await seat.state();
      const model = membersOf(state?.model);
      if (typeof model.id === "string") {
        const levels = await levelsNow(seat);
        return { model, thinkingLevel: stringOf(state?.thinkingLevel) || "off", levels };
      }
    }
    const { model, thinkingLevel } = session;
    const chosen = model && offer.models.find((one) => one.provider === model.provider && one.id === model.id);
    return { model: chosen ?? offer.model, thinkingLevel: thinkingLevel ?? offer.thinkingLevel };
  }

  private async shownSettings(seat: PiSeat, session: AgentSession): Promise<AgentReply> {
    const offer = await this.offerFor(seat, session);
    return settingsOf(offer, await this.inForce(seat, session, offer));
  }

  async setMode(session: AgentSession, modeId: string, telling: Telling): Promise<AgentReply> {
    const settings = await this.set(session, telling, THINKING, modeId);
    await telling.update({ sessionUpdate: "config_option_update", ...optionsOf(settings) });
    return {};
  }

  async setConfigOption(
    session: AgentSession,
    configId: string,
    value: unknown,
    telling: Telling,
  ): Promise<AgentReply> {
    const { modes, ...settings } = await this.set(session, telling, configId, String(value));
    const { currentModeId } = membersOf(modes);
    if (currentModeId !== undefined) await telling.update({ sessionUpdate: "current_mode_update", currentModeId });
    return optionsOf(settings);
  }

  /** Has Pi take a model or a level for a session. Returns what is in force then. */
  private async set(session: AgentSession, telling: Telling, what: string, value: string): Promise<AgentReply> {
    const seat = await this.seatOf(session.sessionId);
    seat.telling = telling;
    if (what !== MODEL && what !== THINKING)
      throw new AcpError(INVALID_PARAMS, `There is no option ${what}. There are ${MODEL} and ${THINKING}.`);
    const offer = await this.offerFor(seat, session);
    if (what === MODEL) {
      const model = offer.models.find((one) => modelName(one) === value);
      if (!model) throw new AcpError(INVALID_PARAMS, `The agent has no model ${value}.`);
      requireDone(await seat.question("set_model", { provider: model.provider, modelId: model.id }, true));
    } else {
      const { model, levels = levelsOf(model) } = await this.inForce(seat, session, offer);
      if (!levels.includes(value)) throw new AcpError(INVALID_PARAMS, `The model has no thinking level ${value}.`);
      requireDone(await seat.question("set_thinking_level", { level: value }, true));
    }
    return this.shownSettings(seat, session);
  }

  private async levelChanged(session: AgentSession, level: string, telling: Telling): Promise<void> {
    const offer = await this.offers.get(this.means.cwdFor({ cwd: session.cwd } as Session))?.catch(() => undefined);
    if (!offer || level === "") return;
    await telling.update({ sessionUpdate: "current_mode_update", currentModeId: level });
  }

  // --- turns ---------------------------------------------------------------------------------------------------

  async prompt(
    session: AgentSession,
    prompt: readonly PromptBlock[],
    telling: Telling,
    isCancelled: () => boolean,
  ): Promise<AgentReply> {
    const seat = await this.seatOf(session.sessionId);
    if (isCancelled()) return { stopReason: "cancelled" };
    return seat.prompt(prompt, session.cwd, telling);
  }

  cancel(sessionId: string): void {
    this.seats.get(sessionId)?.cancel();
  }

  async close(sessionId: string): Promise<void> {
    this.late.delete(sessionId);
    const seat = this.seats.get(sessionId);
    if (seat) await this.leave(seat);
    else await this.leaving.get(sessionId);
  }
}

async function askOffer(seat: PiSeat): Promise<PiOffer> {
  const state = dataOf(await seat.question("get_state"));
  const { models } = dataOf(await seat.question("get_available_models"));
  const { commands } = dataOf(await seat.question("get_commands"));
  const model = membersOf(state.model);
  return {
    models: Array.isArray(models) ? models.map(membersOf) : [],
    commands: Array.isArray(commands) ? commands.map(membersOf) : [],
    model: typeof model.id === "string" ? model : undefined,
    thinkingLevel: stringOf(state.thinkingLevel) || "off",
  };
}

/** Returns the levels of the model that Pi has now; undefined where it does not know the question. */
async function levelsNow(seat: PiSeat): Promise<readonly string[] | undefined> {
  const { levels } = dataOf(await seat.question("get_available_thinking_levels"));
  return Array.isArray(levels) ? levels.map(stringOf) : undefined;
}

function dataOf({ data }: PiReply): LooseMembers {
  return data ?? {};
}

function requireDone({ success, error }: PiReply): void {
  if (success !== true) throw new AcpError(REFUSED, error || "The agent refused and does not say why.");
}

function optionsOf({ configOptions }: LooseMembers): { configOptions: unknown } {
  return { configOptions: configOptions ?? [] };
}
