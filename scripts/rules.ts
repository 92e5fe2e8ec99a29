/** The list of conformance rules in docs/conformance.md, which is made from the rules themselves. */

import { COMBINATIONS, type Combination } from "../src/conformance/combination.ts";
import type { Rule, Theme } from "../src/conformance/rule.ts";
import { formatTable, replacePart } from "./markdown.ts";

/** Returns the text of docs/conformance.md with the list of these rules. */
export function writeRules(text: string, themes: readonly Theme[]): string {
  const count = themes.reduce((sum, { rules }) => sum + rules.length, 0);
  const lists = themes.map(({ name, rules }) => `### ${name}\n\n${tableOf(rules)}`);
  return replacePart(text, "rules", [`${count} rules.`, ...lists].join("\n\n"));
}

function tableOf(rules: readonly Rule[]): string {
  const rows = rules.map((rule) => [`\`${rule.name}\``, rule.title, placeOf(rule), scopeOf(rule)]);
  return formatTable(["rule", "sentence", "in protocol.md", "only"], rows);
}

function placeOf({ source }: Rule): string {
  const anchor = source.toLowerCase().replace(/[^\p{L}\d _-]/gu, "");
  return `[${source}](../protocol.md#${anchor.replaceAll(" ", "-")})`;
}

/** Returns the framing and the dialect that a rule is about, unless it is about both. */
function scopeOf(rule: Rule): string {
  const kept = COMBINATIONS.filter((combination) => rule.applies?.(combination) ?? true);
  const only = (part: keyof Combination): string[] => {
    const values = new Set(kept.map((combination) => combination[part]));
    return values.size === 1 ? [...values] : [];
  };
  return [...only("framing"), ...only("dialect")].join(", ");
}
