import * as z from "zod";
import { explain, REASONS } from "../core/context/explain.ts";
import { pairMessages, type Shown } from "../core/context/pairing.ts";
import type { ImageForm } from "../core/format/images.ts";
import { concat, toBytes } from "../core/json/json.ts";
import { Raw } from "../core/json/raw.ts";
import type { Session } from "../core/session/session.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { defineCommand } from "./shared/command.ts";
import { findPage, findSpan } from "./shared/page.ts";
import { cursor, fromEnd, images, limit, messageResult, nextCursor, typeStored } from "./shared/shapes.ts";

const explanation = z.object({
  entryId: z.string(),
  in: z.boolean().describe("whether the model sees it"),
  reason: z
    .enum(REASONS)
    .describe(
      "shown: as it is; edited: with the content that the entry `by` gives it; shown_in_part: without tool calls that " +
        "have no result (strict); compacted: the compaction `by` stands for it; left_out: by the edit `by`; unpaired: " +
        "a result without its call, or calls without a result and nothing else (strict); unreadable: its bytes are " +
        "damaged; no_message: it has none (null, a number, a list); not_for_model: entries of its kind say nothing to the model",
    ),
  by: z.string().optional(),
  tokens: z.number().int().describe("estimate of its tokens in the context; 0 when it is not in it"),
});

export default defineCommand({
  name: "get_context",
  summary: "What the model sees at any leaf, with model, thinking level and the entries it comes from.",
  effect: "read",
  params: {
    leafId: z.string().nullish().describe("the current leaf by default; null: before the first entry"),
    strict: z
      .boolean()
      .optional()
      .describe(
        "every tool call has its result directly after it, as providers require: calls without a result and results " +
          "without a call are left out; where ids are empty or repeated, the order pairs them",
      ),
    fromEnd,
    cursor,
    limit,
    images,
    explain: z
      .boolean()
      .optional()
      .describe("say for each entry of the path why it is in the context or not; the first page says it for all"),
  },
  result: () =>
    z.object({
      messages: typeStored(z.array(messageResult)),
      model: z.object({ provider: z.string(), id: z.string() }).nullable(),
      thinkingLevel: z.string(),
      entryIds: z.array(z.string()).describe("one for each message"),
      explain: z.array(explanation).optional().describe("one for each entry of the path, root first"),
      nextCursor: nextCursor.describe(
        "there is more; pass this as cursor. Only where limit, cursor or fromEnd ask for pages",
      ),
    }),
  failures: ["entry_not_found", "cursor_expired"],
  example: {
    params: {},
    result: {
      messages: [{ role: "user", content: "Hello" }],
      model: { provider: "anthropic", id: "claude-sonnet-4-5" },
      thinkingLevel: "off",
      entryIds: ["a1b2c3d4"],
    },
  },
  run(context, params) {
    const { session } = context;
    const { leafId, strict, images } = params;
    const { nodes } = session.log;
    const end = leafId === undefined ? session.tree.leaf : leafId === null ? ROOT : session.position(leafId);
    const page = findPage(session, params.cursor, end);
    const { leaf } = page;
    let all = shownAt(session, leaf, images);
    // A message was just found to be damaged, and each id must belong to the message at its index.
    if (session.rebuildAfterLosses()) all = shownAt(session, leaf, images);
    const shown = strict ? pairMessages(session.tree, all) : all;
    const why =
      params.explain && params.cursor === undefined
        ? explain(session.tree, session, leaf, all, shown).map(({ position, by, ...reason }) => ({
            entryId: nodes.id(position),
            ...reason,
            ...(by === undefined ? {} : { by: nodes.id(by) }),
          }))
        : undefined;
    const withId = (i: number): Uint8Array =>
      concat([shown[i].text, toBytes(`,${JSON.stringify(nodes.id(shown[i].item.position))}`)]);
    // A host that does not ask for pages would take the first for the whole context.
    const isPaged = params.limit !== undefined || params.cursor !== undefined || params.fromEnd !== undefined;
    const span = isPaged
      ? findSpan(
          context,
          params,
          shown.length,
          page.index,
          withId,
          why && context.host.sizeOf(toBytes(JSON.stringify(why))),
        )
      : { from: 0, past: shown.length, next: undefined };
    const onPage = shown.slice(span.from, span.past);
    return {
      messages: Raw.array(() => onPage.map(({ text }) => text)),
      model: session.model(leaf),
      thinkingLevel: session.thinkingLevel(leaf),
      entryIds: onPage.map(({ item }) => nodes.id(item.position)),
      explain: why,
      nextCursor: span.next === undefined ? undefined : page.next(span.next),
    };
  },
});

function shownAt(session: Session, leaf: number, images: ImageForm | undefined): Shown[] {
  const shown: Shown[] = [];
  for (const item of session.context(leaf).items) {
    const [text] = session.messageTexts([item], images);
    if (text) shown.push({ item, text });
  }
  return shown;
}
