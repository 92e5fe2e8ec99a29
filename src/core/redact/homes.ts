/** Home folders: their paths have the names of people. */

import type { SecretSpan } from "./tokens.ts";

/** A home folder in a text: the span is all that is replaced. */
interface Home extends SecretSpan {
  readonly user: string;
  /** How the path begins where the home is not that of the session (`/home/`). */
  readonly above: string;
}

/** A path where it may begin: after a letter, it is the end of another one, but for drives and mounts. */
const UNIX =
  /(?<![A-Za-z0-9_.~)}\]%-])((?:\/(?:mnt|host|export|var|usr|private|System\/Volumes\/Data|mnt\/[a-z]|[a-z]))?\\{0,3}\/(?:home|Users)\\{0,3}\/)([A-Za-z0-9_][A-Za-z0-9_.@-]{0,63})/g;
const WINDOWS =
  /(?<![A-Za-z0-9])([A-Za-z]:(?:\\{1,8}|\/{1,2})(?:Users|Documents and Settings)(?:\\{1,8}|\/{1,2}))([^\s\\/:*?"'<>|]{1,64})/gi;
/** Names of folders that Pi and others make of a path: `--home-ann-app--`. */
const FLAT = /(?<![A-Za-z0-9])(-{1,2}(?:home|Users|[A-Za-z]--Users)-)([A-Za-z0-9_.]{1,64})(?=-)/g;
/** Homes of nobody. */
const SHARED = /^(?:shared|public|default|default user|all users|\.+)$/i;

export function* homesIn(text: string): Generator<Home> {
  if (!/home|users|documents and settings/i.test(text)) return;
  for (const shape of [UNIX, WINDOWS, FLAT])
    for (const { 0: found, 1: above, 2: name, index } of text.matchAll(shape)) {
      const user = name.replace(/[.@-]+$/, "");
      if (user === "" || SHARED.test(user)) continue;
      yield { start: index, end: index + found.length - (name.length - user.length), kind: "home_path", user, above };
    }
}

/** The neutral forms of homes: `~` for that of the session, and a number for every other user. */
export class Homes {
  private readonly users = new Map<string, number>();
  private static readonly MOST = 1000;

  /** Numbers the users in the order in which they are met; the first is the session's own. */
  learn(text: string): void {
    for (const { user } of homesIn(text)) this.numberOf(user);
  }

  private numberOf(user: string): number {
    const name = user.toLowerCase();
    const known = this.users.get(name);
    if (known !== undefined || this.users.size >= Homes.MOST) return known ?? Homes.MOST;
    this.users.set(name, this.users.size);
    return this.users.size - 1;
  }

  neutral({ user, above }: Home): string {
    const number = this.numberOf(user);
    if (number > 0) return `${above}user${number + 1}`;
    return above.startsWith("-") ? `${above}user` : "~";
  }
}
