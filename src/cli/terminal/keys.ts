/** Parses what a terminal sends for keys. */

const CONTROLS = {
  "\r": "enter",
  "\n": "enter",
  "\t": "tab",
  "\u007f": "backspace",
  "\b": "backspace",
  "\u0003": "ctrl+c",
  "\u0004": "ctrl+d",
  "\u000c": "ctrl+l",
  "\u0012": "ctrl+r",
  "\u0015": "ctrl+u",
  "\u0017": "ctrl+w",
  "\u001a": "ctrl+z",
} as const;

/** Keys by what follows `ESC [` or `ESC O`, without modifiers. */
const SEQUENCES = {
  A: "up",
  B: "down",
  C: "right",
  D: "left",
  H: "home",
  F: "end",
  M: "enter",
  "1~": "home",
  "7~": "home",
  "4~": "end",
  "8~": "end",
  Z: "tab",
  "3~": "delete",
  "5~": "pageUp",
  "6~": "pageDown",
} as const;

type Control = keyof typeof CONTROLS;
type Sequence = keyof typeof SEQUENCES;
export type KeyName = (typeof CONTROLS)[Control] | (typeof SEQUENCES)[Sequence] | "escape";

/** A key by name, or the character that was typed. */
export type Key =
  | { readonly name: KeyName; readonly text?: undefined }
  | { readonly text: string; readonly name?: undefined };

/** A sequence after its escape character, and the beginning of one. */
const SEQUENCE = /^(?:\[([0-?]*)[ -/]*([@-~])|O([A-Za-z]))/;
const BEGINNING = /^(?:\[[0-?]*[ -/]*|O)?$/;

/**
 * Returns the keys in the input from a terminal, and the rest: the beginning of a sequence or the escape key, which
 * only time distinguishes. Skips unknown sequences and control characters.
 */
export function parseKeys(sent: string): { keys: Key[]; rest: string } {
  const keys: Key[] = [];
  let rest = sent;
  while (rest !== "") {
    if (rest[0] === "\u001b") {
      const following = rest.slice(1);
      const sequence = SEQUENCE.exec(following);
      if (sequence) {
        const [all, params = "", final, single] = sequence;
        // `1;5A` is an arrow with a modifier.
        const name = SEQUENCES[(single ?? (final === "~" ? `${params.split(";")[0]}~` : final)) as Sequence];
        if (name) keys.push({ name });
        rest = following.slice(all.length);
        continue;
      }
      if (BEGINNING.test(following)) return { keys, rest };
      keys.push({ name: "escape" });
      rest = following;
      continue;
    }
    const character = String.fromCodePoint(rest.codePointAt(0) as number);
    rest = rest.slice(character.length);
    const name = CONTROLS[character as Control];
    if (name) keys.push({ name });
    else if (!/\p{Cc}/u.test(character)) keys.push({ text: character });
  }
  return { keys, rest };
}

/** Returns the keys of the rest when nothing more comes: the escape key, and what may have been typed after it. */
export function flushKeys(rest: string): Key[] {
  if (rest === "") return [];
  return [{ name: "escape" }, ...Array.from(rest.slice(1), (text): Key => ({ text }))];
}
