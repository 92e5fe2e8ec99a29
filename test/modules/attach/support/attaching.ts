/** Holders and those who join them, in this process and in others. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { onTestFinished } from "vitest";
import type { Attachments, Entrance, FoundHolder } from "../../../../src/modules/attach/announcing.ts";
import { type AttachOptions, makeAttachments } from "../../../../src/modules/attach/announcing.ts";
import { realDisk } from "../../../../src/storage/fs/disk.ts";
import { temporaryFolder } from "../../../support/server.ts";

const STORAGE = fileURLToPath(new URL("../../../../src/storage/", import.meta.url));

type StoreName = "jsonl" | "v2";

/** A session that only has a path; its content is of no interest here. */
export function sessionIn(folder: string, store: StoreName = "jsonl", name = "session"): string {
  const session = join(folder, store === "jsonl" ? `${name}.jsonl` : `${name}.v2`);
  if (store === "jsonl") writeFileSync(session, "{}\n");
  else mkdirSync(session);
  return session;
}

/** Attachments as a process with these facts has them; its temporary folder is one of the test. */
export function attachmentsWith(options: Partial<AttachOptions> = {}): Attachments {
  return makeAttachments({
    disk: realDisk,
    ownDisk: realDisk,
    variables: {},
    temporary: options.temporary ?? temporaryFolder(),
    client: "a holder",
    version: "1.2.3",
    now: () => Date.now(),
    ...options,
  });
}

/** Opens a session for those who join, and answers what each says. */
export function opened(attachments: Attachments, session: string): Entrance | null {
  const entrance = attachments.open(session, (stream) => {
    stream.on("data", (bytes) => stream.write(`heard ${bytes}`));
    stream.on("end", () => stream.end());
  });
  onTestFinished(() => entrance?.close());
  return entrance;
}

/** Sends something to a holder. Returns its answer, or the code of the error with which it cannot be reached. */
export async function saidTo(holder: FoundHolder | null): Promise<string> {
  if (holder === null) return "nobody";
  let stream: Duplex;
  try {
    stream = await holder.connect();
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
  stream.write("this");
  const [bytes] = await once(stream, "data");
  stream.destroy();
  return String(bytes);
}

/** Returns the names in the folder next to a session, or null where there is no such folder. */
export function listFolder(folder: string): string[] | null {
  try {
    return readdirSync(join(folder, ".pi-session-server")).sort();
  } catch {
    return null;
  }
}

let script: string | undefined;

/** A program that holds or joins a session, as `argv` says. */
function program(): string {
  if (script !== undefined) return script;
  const { outputFiles } = buildSync({
    stdin: {
      contents: `import { makeAttachments } from "../modules/attach/announcing.ts";
        import { realDisk } from "./fs/disk.ts";
        const [role, session, temporary, uid] = process.argv.slice(2);
        // Becomes the other user only now: Node's own program may lie where that user cannot read it.
        if (uid) { process.setgroups([]); process.setuid(Number(uid)); }
        const attachments = makeAttachments({ disk: realDisk, ownDisk: realDisk, variables: process.env, temporary,
          client: "another", version: "1.2.3", now: () => Date.now() });
        const tell = (value) => process.stdout.write(JSON.stringify(value) + "\\n");
        if (role === "join") {
          const holder = attachments.find(session);
          if (holder === null) tell("nobody");
          else holder.connect().then(
            (stream) => stream.on("data", (bytes) => { tell(String(bytes)); stream.destroy(); }).write("this"),
            (error) => tell(error.code));
        } else {
          const entrance = attachments.open(session, (stream) => stream.on("data", (bytes) => stream.write("heard " + bytes)));
          tell(entrance && entrance.announcement);
          if (role === "hold") process.stdin.resume();
        }`,
      resolveDir: STORAGE,
    },
    bundle: true,
    platform: "node",
    format: "cjs",
    write: false,
    define: { "import.meta.url": "'file:///'" },
    logLevel: "error",
  });
  script = outputFiles[0].text;
  return script;
}

/** Starts a process that holds a session, joins it, or holds it and then has nothing more to do, as another user if one is given. */
export async function other(role: "hold" | "join" | "pass", session: string, uid?: number) {
  const folder = temporaryFolder();
  chmodSync(folder, 0o755);
  const file = join(folder, "other.cjs");
  writeFileSync(file, program());
  const args = [file, role, session, temporaryFolder(), ...(uid === undefined ? [] : [String(uid)])];
  const env = { PATH: process.env.PATH };
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"], env });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [line] = await once(child.stdout, "data");
  return { child, place: JSON.parse(String(line)) as unknown };
}
