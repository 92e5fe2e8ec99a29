/** Names in code, paths and codes of errors: people remember a part of them as a word. */

/** Places where a name has another part: a hump, or an underscore within it. */
const JOINT = /[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]/g;
/** Characters of a name. Longer runs are data. */
const LONGEST = 64;
const isOfName = (code: number): boolean =>
  (code >= 0x61 && code <= 0x7a) || (code >= 0x30 && code <= 0x39) || (code >= 0x41 && code <= 0x5a) || code === 0x5f;

/** Returns the parts of a name, in small letters: `getUserByID` has get, user, by, id. One that has no parts is one. */
export function splitIdentifier(name: string): string[] {
  const parts = name.split(/[^\p{L}\p{N}]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/u);
  return parts.filter((part) => part.length > 1).map((part) => part.toLowerCase());
}

/** Returns the parts of all names in a text, each once. It looks at every character once. */
export function findIdentifierParts(text: string): Set<string> {
  const parts = new Set<string>();
  JOINT.lastIndex = 0;
  for (let joint = JOINT.exec(text); joint; joint = JOINT.exec(text)) {
    let start = joint.index;
    let past = start + 1;
    while (start > 0 && isOfName(text.charCodeAt(start - 1)) && past - start <= LONGEST) start--;
    while (past < text.length && isOfName(text.charCodeAt(past))) past++;
    if (past - start <= LONGEST) for (const part of splitIdentifier(text.slice(start, past))) parts.add(part);
    JOINT.lastIndex = past;
  }
  return parts;
}

/** Returns whether a part of a name, or a word, begins at a place of a text. */
export function beginsPart(text: string, at: number): boolean {
  return (
    at === 0 ||
    !isOfName(text.charCodeAt(at - 1)) ||
    text[at - 1] === "_" ||
    /^[a-z0-9][A-Z]/.test(text.slice(at - 1, at + 1))
  );
}
