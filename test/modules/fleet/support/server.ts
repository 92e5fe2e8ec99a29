/** Servers whose sessions are also in a fleet in memory, and what their hosts ask. */

import { expect } from "vitest";
import { Outage } from "../../../../src/modules/fleet/replica/outage.ts";
import type { FleetConnection } from "../../../../src/modules/fleet/store.ts";
import { user } from "../../../support/drafts.ts";
import { HereLives, type HereLivesOptions } from "../../../support/proof.ts";
import type { Json, Wire } from "../../../support/server.ts";
import { type FleetFault, FleetTable, fleetOptions, MemoryFleet } from "./table-fleet.ts";

interface Options extends Omit<HereLivesOptions, "fleet"> {
  readonly table?: FleetTable;
  readonly name?: string;
  /** True if it goes on while the fleet is away. */
  readonly isJournaled?: boolean;
  readonly adminQueries?: FleetConnection["adminQueries"];
  /** True if the leases of others have run out for it. */
  readonly leasesEnd?: boolean;
}

interface Made {
  readonly sessionId: string;
  readonly sessionFile: string;
}

let made = 0;

/** Entries whose texts are their ids. */
export const entriesOf = (...ids: string[]): Json[] => ids.map((id) => user(id, { id }));
export const idsOf = ({ entries }: Json): string[] => entries.map(({ id }: Json) => id);

/** A machine with its own disk, and one server after the other, which make ids of their own. */
export class FleetServer {
  readonly fleet: MemoryFleet;
  readonly lives: HereLives;
  wire!: Wire;
  /** Milliseconds that have passed for it. */
  now = 0;
  private readonly args: readonly string[];

  constructor(
    args: readonly string[] = [],
    {
      table = new FleetTable(),
      name = `machine ${made + 1}`,
      isJournaled = false,
      adminQueries,
      leasesEnd,
      ...more
    }: Options = {},
  ) {
    this.args = args;
    this.fleet = Object.assign(new MemoryFleet(table, name), { leasesEnd: leasesEnd === true });
    const elapsed = (): number => this.now;
    const outage = isJournaled ? new Outage(this.fleet, 0, elapsed) : undefined;
    const fleet = { ...fleetOptions(this.fleet, { elapsed, outage }), adminQueries };
    this.lives = new HereLives({ seed: ++made, fleet, ...more });
  }

  async start(...args: string[]): Promise<this> {
    this.wire = await this.lives.start([...this.args, ...args]);
    return this;
  }

  /** Ends its server, so that its sessions have no holder. */
  async end(): Promise<void> {
    await this.lives.end();
    this.fleet.table.leave();
  }

  /** Starts a server, has a session with these entries, each of a commit of its own, and ends it. */
  async make(ids: readonly string[], ...args: string[]): Promise<Made> {
    await this.start(...args);
    for (const id of ids) await this.append(id);
    const { sessionId, sessionFile } = await this.state();
    await this.end();
    return { sessionId, sessionFile };
  }

  /** Has a session with one entry. Returns its id. */
  async begin(): Promise<string> {
    await this.append("one");
    return (await this.state()).sessionId;
  }

  result = (method: string, params?: Json): Promise<Json> => this.wire.result(method, params);
  /** Returns the failure's name and data. */
  refused = async (method: string, params: Json = {}): Promise<Json> => (await this.wire.failure(method, params)).data;
  state = (): Promise<Json> => this.result("get_state");
  append = (...ids: string[]): Promise<Json> => this.result("append", { entries: entriesOf(...ids) });
  ids = async (where: Json = {}): Promise<string[]> => idsOf(await this.result("get_entries", where));
  path = async (entryId: string): Promise<string[]> => idsOf(await this.result("get_path", { entryId }));

  /** Opens a session, even one with another holder, and writes to it. */
  async takeOver(sessionId: string, ...ids: string[]): Promise<this> {
    this.fleet.leasesEnd = true;
    await this.start();
    await this.result("switch_session", { sessionId });
    await this.append(...ids);
    return this;
  }

  /** Ids of the entries that the fleet has of a session. */
  inFleet(sessionId: string): string[] {
    return this.fleet.table.linesOf(sessionId).map((line) => JSON.parse(line).id);
  }

  /** Has calls of the fleet fail: appends in this way, and all others before they arrive. */
  loses(fault: FleetFault = "before"): void {
    this.fleet.faultAt = (_, name) => (name === "append" ? fault : "before");
  }

  heals(): void {
    this.fleet.faultAt = () => undefined;
  }

  /** Returns the events of a name that the server has sent. */
  heard(name: string): Json[] {
    return this.wire.events.filter(({ method }) => method === name).map(({ params }) => params);
  }

  /** Goes on until something is so, for a while. */
  async until(isSo: () => Promise<boolean> | boolean, step: (n: number) => Promise<unknown>): Promise<void> {
    for (let n = 0; !(await isSo()); n++) {
      expect(n).toBeLessThan(20);
      await step(n);
    }
  }

  isGiven = async (): Promise<boolean> => (await this.state()).durability !== "local";
}
