/** Looks up more than the list returns: the preview of the selection, and the marks of the rows on the screen. */

import { formatLockOwner } from "../lock-owner.ts";
import { computeLayout } from "./layout.ts";
import {
  addEffect,
  type BrowseEvent,
  type BrowseState,
  type Facts,
  getChangedSession,
  isRefused,
  joinSteps,
  type PreviewPlace,
  type Step,
  toStep,
} from "./state.ts";

/** Sessions whose facts are remembered. */
const MAX_FACTS = 1000;
/** Bytes of a session beyond which it is only looked at when it is selected, because that takes time. */
const LARGE = 4 << 20;

function isSamePlace(a: PreviewPlace | undefined, b: PreviewPlace | undefined): boolean {
  return a?.sessionPath === b?.sessionPath && a?.entryId === b?.entryId;
}

/** Asks for the preview of a place, if there is room for one and it is not the one that is shown. */
export function requestPreview(state: BrowseState, place: PreviewPlace | undefined): Step {
  const { preview } = state;
  if (!computeLayout(state).hasPreview || isSamePlace(place, preview.place)) return toStep(state);
  const isSameSession = place !== undefined && place.sessionPath === preview.place?.sessionPath;
  const ticket = preview.ticket + 1;
  const next: BrowseState = {
    ...state,
    preview: {
      ...preview,
      place,
      ticket,
      scroll: 0,
      shown: isSameSession ? preview.shown : undefined,
      failed: undefined,
    },
  };
  return place ? addEffect(next, { do: "preview", place, ticket }) : toStep(next);
}

export function showPreview(state: BrowseState, { ticket, shown }: BrowseEvent & { what: "previewed" }): Step {
  const { preview } = state;
  if (ticket !== preview.ticket || !preview.place) return toStep(state);
  const next = { ...state, preview: { ...preview, shown, failed: undefined } };
  return toStep(withFacts(next, preview.place.sessionPath, shown));
}

export function showPreviewFailure(state: BrowseState, event: BrowseEvent & { what: "unpreviewed" }): Step {
  const { preview } = state;
  if (event.ticket !== preview.ticket || !preview.place) return toStep(state);
  const next = { ...state, preview: { ...preview, shown: undefined, failed: event.message } };
  return toStep(event.isDamaged ? withFacts(next, preview.place.sessionPath, { damageCount: 1 }) : next);
}

function withFacts(
  state: BrowseState,
  path: string,
  { lockedBy, canJoin, readOnly, damageCount, store }: Facts,
): BrowseState {
  const kept = state.facts.size >= MAX_FACTS ? new Map<string, Facts>() : new Map(state.facts);
  return { ...state, facts: kept.set(path, { lockedBy, canJoin, readOnly, damageCount, store }) };
}

export function storeFacts(state: BrowseState, { sessionPath, facts }: BrowseEvent & { what: "looked" }): Step {
  return requestLookup(toStep(answered(withFacts(state, sessionPath, facts), sessionPath, facts)));
}

/** Asks what waited for a look at its session, or says instead which process has the session. */
function answered(state: BrowseState, sessionPath: string, facts: Facts): BrowseState {
  const { lockedBy } = facts;
  const { prompt, held } = state;
  const isWaiting = held !== undefined && getChangedSession(held) === sessionPath;
  const next = isWaiting ? { ...state, held: undefined, isBusy: false, prompt: held } : state;
  const asked = next.prompt ?? prompt;
  if (!lockedBy || asked === undefined || getChangedSession(asked) !== sessionPath || !isRefused(asked, facts))
    return next;
  return { ...next, prompt: undefined, notice: `Open in ${formatLockOwner(lockedBy)}: close it there first.` };
}

/** Adds a lookup of the first session on the screen without known facts. */
export function requestLookup(step: Step): Step {
  const { state } = step;
  const { rows, top, query } = state.list;
  if (query.shelf === "trash") return step;
  const unknown = rows
    .slice(top, top + computeLayout(state).listHeight)
    .find(({ session }) => !state.facts.has(session.sessionPath) && !((session.sizeBytes ?? 0) > LARGE));
  if (!unknown) return step;
  return joinSteps(step, addEffect(state, { do: "look", sessionPath: unknown.session.sessionPath }));
}

export function scrollPreview(state: BrowseState, by: number): Step {
  return toStep({ ...state, preview: { ...state.preview, scroll: state.preview.scroll + by } });
}
