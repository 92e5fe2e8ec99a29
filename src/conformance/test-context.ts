/** Test context of one combination: its servers, which several rules share, and its folders. */

import { join } from "node:path";
import type { Combination } from "./combination.ts";
import { Conversation, type ProtocolViolations } from "./conversation.ts";
import type { Params } from "./dialect.ts";
import { makeFolder } from "./files.ts";
import type { Launcher } from "./launch.ts";
import { MODEST_REPLY, OPTIONAL_COMMANDS, type RuleContext } from "./rule.ts";

interface TestContextOptions {
  readonly command: readonly string[];
  readonly combination: Combination;
  /** Folder of the run; everything that the servers write lies below it if they keep to their environment. */
  readonly folder: string;
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** Milliseconds that a reply may take. */
  readonly timeout: number;
  readonly launcher: Launcher;
}

/** All hooks; a server that knows fewer is asked to know these. */
const HOOKS = ["session_before_switch", "session_before_fork", "session_before_tree", "session_before_compact"];

export class TestContext implements RuleContext {
  readonly combination: Combination;
  readonly folder: string;
  readonly takesSession: boolean;
  readonly conducts: ProtocolViolations[] = [];
  private readonly options: TestContextOptions;
  private readonly variables: Readonly<Record<string, string | undefined>>;
  private readonly shared = new Map<string, Conversation>();
  private readonly made = new Map<string, Promise<unknown>>();
  private started: Conversation[] = [];
  private sessions = 0;
  private commands: ReadonlySet<string> | undefined;
  private latestShared: Conversation | undefined;

  constructor(options: TestContextOptions) {
    this.options = options;
    this.combination = options.combination;
    const { framing, dialect } = options.combination;
    this.folder = makeFolder(join(options.folder, `${framing}-${dialect}`, "files"));
    this.takesSession = options.command.some((part) => part.includes("{session}"));
    this.variables = surroundings(options.variables, join(this.folder, ".."), options.folder);
  }

  /**
   * Returns the context for one rule. Once it is revoked, it gives access to nothing: a rule whose time is over may
   * still be running, and would interfere with the following ones.
   */
  lend(): { context: RuleContext; revoke(): void } {
    let isOver = false;
    const context = new Proxy<RuleContext>(this, {
      get(whole, name) {
        if (isOver) throw new Error("the time of this rule is over");
        const value = Reflect.get(whole, name);
        return typeof value === "function" ? value.bind(whole) : value;
      },
    });
    return {
      context,
      revoke() {
        isOver = true;
      },
    };
  }

  plain(): Promise<Conversation> {
    return this.sharedOne("plain", async () => {});
  }

  hooked(): Promise<Conversation> {
    const hooks = HOOKS.map((name) => ({ name }));
    return this.introduced("hooked", { capabilities: { hooks } });
  }

  start(session?: string): Conversation {
    const conversation = this.launch(session);
    this.started.push(conversation);
    return conversation;
  }

  modest(): Promise<Conversation> {
    const capabilities = { events: ["session_append"], hooks: [{ name: "session_before_fork" }] };
    return this.introduced("modest", { maxReplyBytes: MODEST_REPLY, capabilities });
  }

  once<T>(name: string, make: () => Promise<T>): Promise<T> {
    if (!this.made.has(name)) this.made.set(name, make());
    return this.made.get(name) as Promise<T>;
  }

  /** Learns which commands the server says it has; a server that does not say is tried with all. */
  async learnCommands(): Promise<void> {
    try {
      const { introduction } = await this.hooked();
      const { commands } = introduction?.result.capabilities ?? {};
      if (Array.isArray(commands)) this.commands = new Set(commands);
    } catch {
      // The rules about initialize report its errors.
    }
  }

  /** Returns the latest messages of the live servers, and their stderr. */
  scene(): { messages: readonly string[]; complaints: string } {
    const conversation = this.started.at(-1) ?? this.latestShared;
    return { messages: conversation?.latest ?? [], complaints: conversation?.complaints ?? "" };
  }

  /**
   * Ends the servers that a rule has started, and those that it may have left in a state that the next rule does not
   * expect.
   */
  async clear(isBroken: boolean): Promise<void> {
    const ending = this.started;
    this.started = [];
    await Promise.all(ending.map((conversation) => conversation.kill()));
    for (const [name, conversation] of this.shared)
      if (isBroken || !conversation.isAlive) {
        this.shared.delete(name);
        await conversation.kill();
      }
  }

  /** Ends everything. */
  async leave(): Promise<void> {
    await this.clear(false);
    await Promise.all([...this.shared.values()].map((conversation) => conversation.leave()));
    this.shared.clear();
  }

  private introduced(name: string, params: Params): Promise<Conversation> {
    return this.sharedOne(name, (conversation) => introduce(conversation, params));
  }

  private async sharedOne(name: string, begin: (conversation: Conversation) => Promise<void>): Promise<Conversation> {
    let conversation = this.shared.get(name);
    if (!conversation?.isAlive) {
      conversation = this.launch();
      this.latestShared = conversation;
      try {
        await begin(conversation);
      } catch (error) {
        await conversation.kill();
        throw error;
      }
      this.shared.set(name, conversation);
    }
    this.latestShared = conversation;
    return conversation;
  }

  private launch(session?: string): Conversation {
    const { command, cwd, timeout, launcher } = this.options;
    const path = session ?? join(this.folder, `session-${++this.sessions}.jsonl`);
    const words = command.map((word) => word.replaceAll("{session}", path).replaceAll("{dir}", this.options.folder));
    const server = launcher(words, { cwd, variables: this.variables });
    const conversation = new Conversation(
      server,
      this.combination,
      timeout,
      (command) => this.commands?.has(command) === false && OPTIONAL_COMMANDS.has(command),
    );
    this.conducts.push(conversation.violations);
    return conversation;
  }
}

async function introduce(conversation: Conversation, params: Params): Promise<void> {
  const clientInfo = { name: "conformance" };
  conversation.introduction = await conversation.ask("initialize", { protocolVersion: 1, clientInfo, ...params });
  void conversation.introduction.result;
}

/**
 * Returns the environment of the servers of a combination: the user's, but with a home of its own. Caches are shared by
 * the whole run, because they only make a start quicker.
 */
function surroundings(
  variables: Readonly<Record<string, string | undefined>>,
  place: string,
  run: string,
): Readonly<Record<string, string | undefined>> {
  const kept = Object.entries(variables).filter(([name]) => !/^(?:PI_|XDG_)/.test(name) || name === "XDG_CACHE_HOME");
  const home = makeFolder(join(place, "home"));
  return {
    XDG_CACHE_HOME: join(run, "cache"),
    ...Object.fromEntries(kept),
    HOME: home,
    USERPROFILE: home,
    PI_CODING_AGENT_DIR: join(home, ".pi", "agent"),
    PI_SESSION_SERVER_STATE_DIR: join(home, "state"),
  };
}
