import * as z from "zod";
import { removeEntryImages } from "../core/format/images.ts";
import { Raw } from "../core/json/raw.ts";
import { defineCommand } from "./shared/command.ts";
import { entry, images, makeEntryExample, typeStored } from "./shared/shapes.ts";

export default defineCommand({
  name: "get_entry",
  summary: "One entry as it is stored, its children and its label.",
  effect: "read",
  params: { entryId: z.string(), images },
  result: () =>
    z.object({
      entry: typeStored(entry),
      childIds: z.array(z.string()).describe("in file order"),
      label: z.string().nullable(),
    }),
  failures: ["entry_not_found"],
  example: {
    params: { entryId: "b2c3d4e5" },
    result: { entry: makeEntryExample("b2c3d4e5", "a1b2c3d4", "Hello"), childIds: ["c3d4e5f6"], label: null },
  },
  run(context, { entryId, images }) {
    const { session } = context;
    const position = session.position(entryId);
    const line = session.line(position);
    return {
      entry: Raw.of(images ? removeEntryImages(line, images, session.log.nodes.id(position)) : line),
      childIds: Array.from(session.tree.children(position), (child) => session.log.nodes.id(child)),
      label: session.tree.labels.get(position)?.label ?? null,
    };
  },
});
