/** Home folders: their paths have the names of people. */

import type { SecretSpan } from "./tokens.ts";

/** A home folder in a text: the span is all that is replaced. */
interface Home extends SecretSpan {
  /** The text in its place. */
  readonly neutral: string;
}

/** A place where a path may begin: after a letter, it is the end of another one, except drives and mounts. */
const UNIX =
  /(?<![A-Za-z0-9_.~)}\]%-])((?:\/(?:mnt|host|export|var|usr|private|System\/Volumes\/Data|mnt\/[a-z]|[a-z]))?\\{0,3}\/(?:home|Users)\\{0,3}\/)([A-Za-z0-9_][A-Za-z0-9_.@-]{0,63})/g;
const WINDOWS =
  /(?<![A-Za-z0-9])([A-Za-z]:(?:\\{1,8}|\/{1,2})(?:Users|Documents and Settings)(?:\\{1,8}|\/{1,2}))([^\s\\/:*?"'<>|]{1,64})/gi;
/** Names of folders that Pi and others make of a path: `--home-ann-app--`. */
const FLAT = /(?<![A-Za-z0-9])(-{1,2}(?:home|Users|[A-Za-z]--Users)-)([A-Za-z0-9_.]{1,64})(?=-)/g;
/** Homes of accounts that are no person. */
const SHARED = /^(?:shared|public|default|default user|all users|\.+)$/i;

/** The home within a path of a system that has its homes in another place (`/data/home/ann`, `/home2/ann`). */
const ELSEWHERE = /^(?:[\\/][^\\/]{1,64}){0,4}?[\\/](?:homes?|users)\d{0,2}[\\/][^\\/]{1,64}/i;
/** Folders that daemons and containers name as HOME, and that are no person's home. */
const NOBODYS = /^[\\/]?(?:$|(?:tmp|var|usr|etc|opt|dev|bin|sbin|nonexistent|home|Users)$)/;

/** Returns the shapes of a path and of the name of a folder that is made of it. */
function shapesOf(path: string): string[] {
  const parts = path.split(/[\\/]+/).filter((part) => part !== "");
  const escaped = parts.map((part) => part.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
  const isDrive = /^[A-Za-z]:$/.test(parts[0] ?? "");
  const separator = "(?:\\\\{1,8}|\\\\{0,3}/{1,2})";
  const flat = escaped.join("-");
  return [
    `(?<![A-Za-z0-9_.~)}\\]%-])${isDrive ? "" : "\\\\{0,3}/"}${escaped.join(separator)}(?![A-Za-z0-9_-]|\\.\\w)`,
    // A folder of one part has the name of an option of many programs (`--root-dir`).
    parts.length > 1
      ? `(?<![A-Za-z0-9])-{1,2}${flat}(?=-)`
      : `(?<=[/\\\\"'])-${flat}(?=-)|--${flat}(?=-[^\\s/]{1,200}--)`,
  ];
}

/** The neutral forms of homes: `~` for that of the session, of the caller and of root, and a number for every other user. */
export class Homes {
  private readonly users = new Map<string, number>();
  private readonly own = new Map<string, readonly string[]>();
  private ownShape: RegExp;
  private static readonly MOST = 1000;

  constructor() {
    this.own.set("/root", shapesOf("/root"));
    this.ownShape = this.shape();
  }

  /** Takes the home of the session's working directory as its own. */
  learn(cwd: string): void {
    for (const { user } of usersIn(cwd)) this.numberOf(user);
    const elsewhere = ELSEWHERE.exec(cwd)?.[0];
    if (elsewhere !== undefined) this.learnHome(elsewhere);
  }

  /** Takes a folder as a person's home, in any place. */
  learnHome(path: string): void {
    const folder = path.replace(/[\\/]+$/, "");
    // One among the homes of a system gets a number.
    if (NOBODYS.test(folder) || usersIn(folder).next().done === false) return;
    this.own.set(folder, shapesOf(folder));
    this.ownShape = this.shape();
  }

  private shape(): RegExp {
    const folders = [...this.own].sort(([a], [b]) => b.length - a.length);
    return new RegExp(folders.flatMap(([, shapes]) => shapes).join("|"), "g");
  }

  *in(text: string): Generator<Home> {
    for (const { 0: found, index } of text.matchAll(this.ownShape))
      if (!isOfAccount(text, index))
        yield {
          start: index,
          end: index + found.length,
          kind: "home_path",
          neutral: found.startsWith("-") ? `${/^-+/.exec(found)?.[0]}user` : "~",
        };
    for (const { user, above, ...span } of usersIn(text))
      if (!isOfAccount(text, span.start)) yield { ...span, neutral: this.neutral(user, above) };
  }

  private numberOf(user: string): number {
    const name = user.toLowerCase();
    const known = this.users.get(name);
    if (known !== undefined || this.users.size >= Homes.MOST) return known ?? Homes.MOST;
    this.users.set(name, this.users.size);
    return this.users.size - 1;
  }

  private neutral(user: string, above: string): string {
    const number = this.numberOf(user);
    if (number > 0) return `${above}user${number + 1}`;
    return above.startsWith("-") ? `${above}user` : "~";
  }
}

/** Returns whether a home is that of an account in a line of passwd(5), which names the account anyway. */
const isOfAccount = (text: string, at: number): boolean =>
  text[at - 1] === ":" && /:\d+:\d+:[^:\n]{0,128}:$/.test(text.slice(Math.max(0, at - 160), at));

/** A home among those of a system, with the beginning of its path if it is not that of the session (`/home/`). */
interface UserHome extends SecretSpan {
  readonly user: string;
  readonly above: string;
}

function* usersIn(text: string): Generator<UserHome> {
  if (!/home|users|documents and settings/i.test(text)) return;
  for (const shape of [UNIX, WINDOWS, FLAT])
    for (const { 0: found, 1: above, 2: name, index } of text.matchAll(shape)) {
      const user = name.replace(/[.@-]+$/, "");
      if (user === "" || SHARED.test(user)) continue;
      yield { start: index, end: index + found.length - (name.length - user.length), kind: "home_path", user, above };
    }
}
