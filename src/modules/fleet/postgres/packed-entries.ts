/** Single entries of packs, for a search: each pack is fetched once, whatever number of its entries is asked for. */

import type { Connections } from "./connections.ts";
import { unpackLines } from "./pack.ts";

/** Maximum stored bytes of a pack that is fetched for one entry. */
const LARGEST_PACK = 8 << 20;

type FoundRow = Readonly<Record<string, unknown>>;

export class PackedEntries {
  private readonly connections: Connections;
  private readonly tenant: string;
  private readonly opened = new Map<string, Promise<readonly Uint8Array[]>>();

  constructor(connections: Connections, tenant: string) {
    this.connections = connections;
    this.tenant = tenant;
  }

  /** Returns the line at a `position` in a `pack` of session `id`; empty if it is too long, or gone. */
  async lineOf({ id, generation, pack, position }: FoundRow): Promise<Uint8Array> {
    const key = JSON.stringify([id, generation, pack]);
    let lines = this.opened.get(key);
    if (!lines) {
      lines = this.open([this.tenant, id, generation, pack, LARGEST_PACK]);
      this.opened.set(key, lines);
    }
    return (await lines)[Number(position) - Number(pack)] ?? new Uint8Array(0);
  }

  private async open(values: readonly unknown[]): Promise<readonly Uint8Array[]> {
    const [row] = await this.connections.read({
      text: `select ends, codec, lines from pi_fleet.pack where tenant = $1 and session_id = $2 and generation = $3
        and seq = $4 and pg_catalog.octet_length(lines) <= $5`,
      values,
    });
    if (!row) return [];
    return unpackLines({ ends: row.ends as number[], codec: Number(row.codec), lines: row.lines as Uint8Array });
  }
}
