// A host in a few lines: starts the built server, sends requests as lines, hands on replies and events.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Returns the path of the server: of the package that is installed, or of the clone that this file lies in. */
function program() {
  let manifest;
  try {
    manifest = import.meta.resolve("pi-session-server/package.json");
  } catch {
    manifest = new URL("../package.json", import.meta.url);
  }
  return fileURLToPath(new URL("dist/bin/pi-session-server.js", manifest));
}

export class Client {
  /**
   * `onHook` answers what the server asks, if the host registered hooks: an object, or nothing to let it happen.
   * @param {string[]} args
   * @param {{ env: NodeJS.ProcessEnv, cwd: string, onEvent?: (name: string, params: any) => void,
   *   onHook?: (name: string, params: any) => any }} options
   */
  constructor(args, { env, cwd, onEvent = () => {}, onHook = () => ({}) }) {
    const path = program();
    if (!existsSync(path))
      throw new Error(
        `There is no server at ${path}. Run \`npm install pi-session-server\`, or \`npm ci\` in a clone.`,
      );
    this.waiting = new Map();
    this.lastId = 0;
    this.complaints = "";
    this.child = spawn(process.execPath, [path, ...args], { env, cwd });
    this.child.stderr.on("data", (chunk) => {
      this.complaints += chunk;
    });
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      if ("method" in message && "id" in message) this.answer(message.id, () => onHook(message.method, message.params));
      else if ("method" in message) onEvent(message.method, message.params);
      else this.settle(message);
    });
    // Writing to a server that has ended fails; the requests that wait are told by its end.
    this.child.stdin.on("error", () => {});
    this.ended = new Promise((resolve) => {
      this.child.on("close", (status) => {
        for (const { reject } of this.waiting.values()) reject(new Error(`The server ended. ${this.complaints}`));
        resolve(status);
      });
    });
  }

  settle({ id, result, error }) {
    if (!this.waiting.has(id)) {
      // The id is null when the server could not read a request.
      this.complaints += `${error?.message}\n`;
      return;
    }
    const { resolve, reject } = this.waiting.get(id);
    this.waiting.delete(id);
    if (error) reject(Object.assign(new Error(error.message), { code: error.code, data: error.data }));
    else resolve(result);
  }

  /** Answers a hook. When its handler throws, the action does not happen. */
  async answer(id, handler) {
    let reply;
    try {
      reply = { result: (await handler()) ?? {} };
    } catch (error) {
      reply = { error: { code: -32603, message: error instanceof Error ? error.message : String(error) } };
    }
    this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...reply })}\n`);
  }

  /** Resolves with the result; rejects with an error that has the wire's code and data. */
  request(method, params = {}) {
    const id = ++this.lastId;
    this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  /** Ends the server at once. Does nothing when it has ended. */
  kill() {
    this.child.kill("SIGKILL");
  }

  /** Ends the input, as a host does that is done. Resolves with the exit status. */
  close() {
    this.child.stdin.end();
    return this.ended;
  }
}

/** This process's environment with everything of a person's own sessions replaced by a folder. */
export function isolatedEnvironment(folder) {
  const kept = Object.entries(process.env).filter(([name]) => !/^(PI_|XDG_)/.test(name));
  return {
    ...Object.fromEntries(kept),
    HOME: folder,
    USERPROFILE: folder,
    PI_SESSION_SERVER_STATE_DIR: join(folder, "state"),
  };
}
