/** The talk in the sessions of `remembered.ts`: five projects of one person, half a year. */

/** A message, or a call of a tool with its output; `failed`: it was an error. */
export type RememberedTurn =
  | readonly [by: "user" | "assistant", text: string]
  | readonly [by: "call", tool: string, args: Readonly<Record<string, string>>, output: string, failed?: boolean];

export type RememberedAgent = "pi" | "claude" | "codex" | "gemini" | "copilot";

export interface RememberedSession {
  readonly agent: RememberedAgent;
  readonly project: string;
  readonly day: string;
  readonly name?: string;
  readonly turns: readonly RememberedTurn[];
  /** A branch after `turns` that was left (Pi only); `instead` goes on from the same place. */
  readonly left?: readonly RememberedTurn[];
  readonly instead?: readonly RememberedTurn[];
  /** The rest of a fork, in a file of its own (Pi only). */
  readonly fork?: readonly RememberedTurn[];
  /** The talk with a subagent (Claude Code only). */
  readonly subagent?: readonly RememberedTurn[];
  readonly archived?: true;
}

const SHOP: readonly RememberedSession[] = [
  {
    agent: "pi",
    project: "shop",
    day: "2026-01-12",
    name: "Choose a cache",
    turns: [
      ["user", "The product pages are slow. Which cache shall we put in front of the catalogue?"],
      [
        "assistant",
        "I measured: 80 % of the time goes into price lookups. Redis would do, with keys that expire after ten minutes.",
      ],
    ],
    left: [
      ["user", "Good, set up Redis then."],
      ["call", "bash", { command: "docker compose up -d redis" }, "Error: port 6379 is already allocated", true],
      ["assistant", "Redis runs on port 6380 now, and priceCache.ts reads from it."],
    ],
    instead: [
      ["user", "I do not want to operate another server. Keep the prices in memory, in an LRU map of 5,000 entries."],
      [
        "call",
        "edit",
        { path: "src/catalogue/priceCache.ts", oldText: "redis.get(sku)", newText: "lru.get(sku)" },
        "ok",
      ],
      ["assistant", "Done: priceCache.ts is an LRU map in the process now, and Redis is gone from compose.yaml."],
    ],
  },
  {
    agent: "claude",
    project: "shop",
    day: "2026-01-20",
    turns: [
      ["user", "Checkout fails for customers in Norway. The log has TaxRegionError: no rate for NO-SVALBARD."],
      ["call", "Bash", { command: "grep -rn NO-SVALBARD src/tax" }, 'src/tax/regions.json:118: "NO-SVALBARD": null'],
      [
        "assistant",
        "Svalbard has no value added tax, so its rate is null, and lookUpRate() takes null for missing. I return 0 for it and keep the error for unknown regions.",
      ],
      ["user", "Add a test for that."],
      ["assistant", "taxRates.test.ts has a case for Svalbard and one for an unknown region."],
    ],
    subagent: [
      ["user", "Find every place in the shop that divides by the tax rate."],
      [
        "assistant",
        "Two places divide by the rate: refundCalculator.ts line 88 and invoiceSplit.ts line 41. Both crash for a rate of zero.",
      ],
    ],
  },
  {
    agent: "codex",
    project: "shop",
    day: "2026-02-03",
    turns: [
      ["user", "Move the order emails off the request path. Which queue do you suggest?"],
      [
        "assistant",
        "BullMQ needs Redis, which you removed. pg-boss keeps its jobs in the Postgres that is there, so I suggest pg-boss.",
      ],
      ["user", "pg-boss it is."],
      [
        "assistant",
        "Orders enqueue sendOrderMail with pg-boss; the worker is in src/mail/worker.ts and retries five times.",
      ],
    ],
  },
  {
    agent: "codex",
    project: "shop",
    day: "2026-04-17",
    turns: [
      ["user", "pg-boss polls too much: the database is at 30 % load with no orders at all."],
      [
        "assistant",
        "Its polling interval is 500 ms for each of 40 queues. I replaced pg-boss by LISTEN/NOTIFY with a small table outbox_jobs, and the idle load is below 1 %.",
      ],
      ["user", "So the queue is our own table now?"],
      ["assistant", "Yes: outbox_jobs with SKIP LOCKED. pg-boss is removed from package.json."],
    ],
  },
  {
    agent: "gemini",
    project: "shop",
    day: "2026-02-19",
    turns: [
      ["user", "Write a migration that splits customers.full_name into two columns."],
      [
        "assistant",
        "0042_split_full_name.sql adds given_name and family_name, fills them at the last space, and leaves full_name as a generated column.",
      ],
      ["user", "What happens with single names?"],
      [
        "assistant",
        "Mononyms go into given_name, and family_name is an empty string, not null, because the invoice template prints it.",
      ],
    ],
  },
  {
    agent: "copilot",
    project: "shop",
    day: "2026-03-02",
    turns: [
      ["user", "The cart total jumps by one cent when a voucher is applied. Why?"],
      [
        "assistant",
        "applyVoucher() rounds each line, and the total is rounded again. I sum in tenths of a cent and round once with half-even in roundMoney().",
      ],
    ],
  },
  {
    agent: "claude",
    project: "shop",
    day: "2026-03-11",
    turns: [
      ["user", "Stripe webhooks arrive twice and we ship twice. Make it idempotent."],
      [
        "assistant",
        "handleWebhook() now inserts the event id into processed_events first; the unique index makes the second delivery a no-op.",
      ],
      ["user", "How long do we keep the ids?"],
      ["assistant", "Thirty days: Stripe retries for three, and a nightly job prunes the rest."],
    ],
  },
  {
    agent: "pi",
    project: "shop",
    day: "2026-05-06",
    name: "Image resizing",
    turns: [
      ["user", "Thumbnails eat all memory on the small machine."],
      [
        "assistant",
        "sharp keeps a cache of decoded images. sharp.cache(false) and one worker bring the peak from 900 MB to 140 MB.",
      ],
    ],
    fork: [
      ["user", "Try it with libvips streaming instead."],
      [
        "assistant",
        "With sequentialRead the peak is 95 MB, but progressive JPEGs fail with VipsJpeg: out of order read, so I would not take it.",
      ],
    ],
  },
  {
    agent: "gemini",
    project: "shop",
    day: "2026-05-28",
    turns: [
      ["user", "Which search engine for the product search: Meilisearch, Typesense or Postgres full text?"],
      [
        "assistant",
        "For 12,000 products Postgres full text with a trigram index is enough: 14 ms at p95, and nothing new to operate.",
      ],
    ],
  },
];

const ATLAS: readonly RememberedSession[] = [
  {
    agent: "claude",
    project: "atlas",
    day: "2026-01-15",
    turns: [
      ["user", "The tile importer dies after an hour with ENOSPC although the disk is half empty."],
      ["call", "Bash", { command: "df -i /data" }, "Filesystem Inodes IUsed IFree IUse% /dev/vdb 6.5M 6.5M 0 100%"],
      [
        "assistant",
        "The disk has no inodes left: a million tiles are a file each. I pack them into PMTiles archives, one for each zoom level.",
      ],
    ],
  },
  {
    agent: "pi",
    project: "atlas",
    day: "2026-01-29",
    name: "Projection bug",
    turns: [
      ["user", "Coordinates near the date line end up on the other side of the world."],
      [
        "assistant",
        "normalizeLongitude() wraps at 180 inclusive, so 180 becomes -180. I wrap with ((x + 540) % 360) - 180 and keep +180 as it is.",
      ],
      ["user", "Does the renderer still draw Fiji in one piece?"],
      ["assistant", "Yes, after splitting polygons at the antimeridian in splitAntimeridian()."],
    ],
  },
  {
    agent: "codex",
    project: "atlas",
    day: "2026-02-08",
    turns: [
      ["user", "How do I run the importer for only one country?"],
      ["assistant", "python -m atlas.importer --region iceland --skip-download; the region names are in regions.toml."],
      ["user", "And where are the downloads cached?"],
      ["assistant", "In ~/.cache/atlas/pbf, keyed by the date of the extract. Set ATLAS_CACHE_DIR to move them."],
    ],
  },
  {
    agent: "codex",
    project: "atlas",
    day: "2026-02-25",
    turns: [
      ["user", "Shall the routing graph be stored in SQLite or in flat files?"],
      ["assistant", "SQLite: a lookup is 30 microseconds, and one file is easy to ship."],
      ["user", "Then build it so."],
      ["assistant", "graph.sqlite is built by build_graph.py, 1.2 GB for Europe."],
    ],
  },
  {
    agent: "codex",
    project: "atlas",
    day: "2026-05-14",
    turns: [
      ["user", "Routing is too slow with the SQLite graph: 4 seconds for Lisbon to Helsinki."],
      [
        "assistant",
        "Each edge is a query. I wrote the graph as flat arrays that are memory-mapped (graph.bin), and the same route takes 90 ms. The SQLite graph is dropped.",
      ],
    ],
  },
  {
    agent: "gemini",
    project: "atlas",
    day: "2026-03-19",
    turns: [
      ["user", "The label placement flickers while panning."],
      [
        "assistant",
        "Labels are placed anew in each frame with another order. I sort candidates by feature id before the collision grid, so that the same label wins.",
      ],
    ],
  },
  {
    agent: "copilot",
    project: "atlas",
    day: "2026-04-01",
    turns: [
      ["user", "CI fails with GDAL_DATA is not defined only on the arm runner."],
      [
        "assistant",
        "The arm image installs gdal from conda, which sets GDAL_DATA in its activation script; the step does not activate. I set the variable in the workflow.",
      ],
    ],
  },
  {
    agent: "claude",
    project: "atlas",
    day: "2026-04-22",
    turns: [
      ["user", "We got a takedown request for the satellite layer. Name the source and its licence."],
      [
        "assistant",
        "The layer is Sentinel-2 cloudless 2024, CC BY-NC-SA: non-commercial only. I switched the default to the 2016 mosaic, which is CC BY.",
      ],
    ],
    subagent: [
      ["user", "List every tile source in the configuration with its licence."],
      [
        "assistant",
        "Five sources: OSM raster (ODbL), Sentinel-2 2016 (CC BY), hillshade (public domain), contours (ODbL), and bathymetry from GEBCO (public domain).",
      ],
    ],
  },
  {
    agent: "pi",
    project: "atlas",
    day: "2026-06-02",
    name: "Old elevation import",
    archived: true,
    turns: [
      ["user", "The elevation import has holes over the Alps."],
      ["assistant", "Void cells of SRTM are -32768. fill_voids.py takes them from Copernicus GLO-30 now."],
    ],
  },
];

const QUILL: readonly RememberedSession[] = [
  {
    agent: "pi",
    project: "quill",
    day: "2026-01-18",
    name: "Undo for the editor",
    turns: [
      ["user", "Design undo for the editor: snapshots or operations?"],
      [
        "assistant",
        "Operations: a snapshot of a 2 MB document for each key is too much. Each operation knows its inverse.",
      ],
    ],
    left: [
      ["user", "Write it with operations and group them by time, 500 ms."],
      ["assistant", "undoStack.ts groups operations that are less than 500 ms apart."],
    ],
    instead: [
      ["user", "Grouping by time feels wrong. Group by word boundaries."],
      ["assistant", "undoStack.ts closes a group at a space, a newline or a cursor jump. Time plays no role any more."],
    ],
  },
  {
    agent: "claude",
    project: "quill",
    day: "2026-02-11",
    turns: [
      ["user", "Typing Japanese with an IME doubles characters in Firefox."],
      [
        "assistant",
        "Firefox fires input after compositionend, Chrome before it. onCompositionEnd() ignores the input event that follows within the same task.",
      ],
    ],
  },
  {
    agent: "gemini",
    project: "quill",
    day: "2026-02-27",
    turns: [
      ["user", "Opening a document of 40 MB freezes the window for 12 seconds."],
      [
        "assistant",
        "The tokenizer of the highlighter runs over everything. I run it only for visible lines and continue in requestIdleCallback; the window opens in 300 ms.",
      ],
    ],
  },
  {
    agent: "codex",
    project: "quill",
    day: "2026-03-08",
    turns: [
      ["user", "Which CRDT library shall collaborative editing use, Yjs or Automerge?"],
      ["assistant", "Yjs: its updates are a tenth of the size, and there is a binding for our editor core."],
      ["user", "Fine, start with Yjs."],
      ["call", "shell", { command: "npm install yjs y-websocket" }, "added 14 packages"],
      ["assistant", "The document is a Y.Text now, and awareness shows the cursors of others."],
    ],
  },
  {
    agent: "copilot",
    project: "quill",
    day: "2026-04-09",
    turns: [
      ["user", "The spell checker marks every word in code blocks."],
      [
        "assistant",
        "shouldCheck() looks at the token type; code fences have the type fence-body, which was missing in the skip list.",
      ],
    ],
  },
  {
    agent: "claude",
    project: "quill",
    day: "2026-04-30",
    turns: [
      ["user", "Exporting to PDF loses the emoji."],
      [
        "assistant",
        "The embedded font has no colour glyphs. I embed Noto Color Emoji as a fallback in pdfFonts.ts; a page grows by 90 KB where it has any.",
      ],
      ["user", "Can we subset the font?"],
      ["assistant", "hb-subset keeps only the used glyphs: 6 KB for three emoji."],
    ],
  },
  {
    agent: "pi",
    project: "quill",
    day: "2026-05-19",
    name: "Autosave",
    turns: [
      ["user", "Autosave overwrote my file with an empty one after a crash."],
      [
        "assistant",
        "saveFile() truncates before it writes. It writes to a temporary file now, syncs it, and renames it over the old one.",
      ],
    ],
    fork: [
      ["user", "What about network drives, where rename is not atomic?"],
      [
        "assistant",
        "On SMB I keep a backup named .quill~ until the new file was read back; detectNetworkDrive() decides.",
      ],
    ],
  },
];

const LEDGER: readonly RememberedSession[] = [
  {
    agent: "codex",
    project: "ledger",
    day: "2026-01-22",
    turns: [
      ["user", "Store amounts as floats, decimals or integers?"],
      [
        "assistant",
        "Integers in the smallest unit, with the exponent of the currency from ISO 4217: yen have 0, dinars 3.",
      ],
    ],
  },
  {
    agent: "claude",
    project: "ledger",
    day: "2026-02-14",
    turns: [
      ["user", "The bank import reads CAMT.053 files twice when the bank sends a correction."],
      [
        "assistant",
        "A correction has the same AcctSvcrRef with another ElctrncSeqNb. I key entries by AcctSvcrRef and keep the highest sequence number.",
      ],
    ],
  },
  {
    agent: "gemini",
    project: "ledger",
    day: "2026-03-05",
    turns: [
      ["user", "How do we close a fiscal year?"],
      [
        "assistant",
        "ledger close --year 2025 writes the closing entries to equity:retained and locks the year; ledger reopen needs the flag --i-know.",
      ],
    ],
  },
  {
    agent: "pi",
    project: "ledger",
    day: "2026-03-27",
    name: "Exchange rates",
    turns: [
      ["user", "Where do the exchange rates come from?"],
      ["assistant", "From the ECB feed, once a day at 16:15 Frankfurt time, cached in rates.jsonl."],
      ["user", "The ECB has no rate for the Argentine peso."],
      [
        "assistant",
        "For those I take openexchangerates, with the key from the keyring; the source is in the column rate_source.",
      ],
    ],
  },
  {
    agent: "claude",
    project: "ledger",
    day: "2026-04-12",
    turns: [
      ["user", "Reports for the tax office must be reproducible. Two runs differ."],
      ["call", "Bash", { command: "diff report-1.xml report-2.xml" }, '< <entry id="77"/> > <entry id="78"/>', true],
      [
        "assistant",
        "Rows with the same date came in the order of the hash map. I order by date, account and entry number, and both runs have the same bytes.",
      ],
    ],
  },
  {
    agent: "copilot",
    project: "ledger",
    day: "2026-05-03",
    turns: [
      ["user", "Why does importCsv throw ERR_UNEXPECTED_DELIMITER for files from the savings bank?"],
      [
        "assistant",
        "They are in windows-1252 with a semicolon, and the sniffer sees the first 100 bytes only. sniffDialect() takes 4 KB now and tries both encodings.",
      ],
    ],
  },
  {
    agent: "codex",
    project: "ledger",
    day: "2026-05-25",
    turns: [
      ["user", "Should users sign in with passkeys or with passwords?"],
      [
        "assistant",
        "Passkeys with a recovery code on paper; passwords only for the command line, hashed with argon2id.",
      ],
      ["user", "Leave passwords out altogether."],
      [
        "assistant",
        "Then the command line uses the device flow: ledger login prints a code for the browser. No password is stored anywhere.",
      ],
    ],
  },
];

const BEACON: readonly RememberedSession[] = [
  {
    agent: "pi",
    project: "beacon",
    day: "2026-01-25",
    name: "Retention of metrics",
    turns: [
      ["user", "How long do we keep raw metrics?"],
      ["assistant", "Two weeks raw, a year in steps of five minutes. With 300 hosts that is 80 GB."],
      ["user", "Legal wants 90 days raw."],
      ["assistant", "Then it is 480 GB. retention.yaml says raw: 90d now, and the volume grew to 600 GB."],
    ],
  },
  {
    agent: "claude",
    project: "beacon",
    day: "2026-02-06",
    turns: [
      ["user", "The alert for disk space fires every night at three."],
      [
        "assistant",
        "The backup writes its archive to /var/tmp first. The rule disk_almost_full waits for 30 minutes now, and the backup streams to S3.",
      ],
    ],
  },
  {
    agent: "codex",
    project: "beacon",
    day: "2026-02-21",
    turns: [
      ["user", "The agent leaks file descriptors: too many open files after two days."],
      ["call", "shell", { command: "ls /proc/$(pgrep beacond)/fd | wc -l" }, "65521"],
      [
        "assistant",
        "probeHttp() returns early on a redirect and never closes the body. With defer resp.Body.Close() the count stays at 40.",
      ],
    ],
  },
  {
    agent: "gemini",
    project: "beacon",
    day: "2026-03-14",
    turns: [
      ["user", "Use Kubernetes or plain systemd for the collectors?"],
      [
        "assistant",
        "Three machines do not need Kubernetes. systemd units with socket activation, deployed by ansible.",
      ],
    ],
  },
  {
    agent: "gemini",
    project: "beacon",
    day: "2026-06-09",
    turns: [
      ["user", "We have twenty collectors now. Is systemd with ansible still right?"],
      [
        "assistant",
        "No: rollouts take an hour and drift. I moved the collectors to Nomad, with a job file in deploy/collector.nomad; ansible only installs the client.",
      ],
    ],
  },
  {
    agent: "copilot",
    project: "beacon",
    day: "2026-04-25",
    turns: [
      ["user", "Grafana shows gaps for the hosts in Singapore."],
      [
        "assistant",
        "Their clocks are four minutes ahead, and the server drops samples from the future. chrony was masked there; it runs again, and out_of_order_time_window is 10m.",
      ],
    ],
  },
  {
    agent: "claude",
    project: "beacon",
    day: "2026-05-11",
    turns: [
      ["user", "TLS handshakes with the old routers fail: SSL alert 40."],
      [
        "assistant",
        "They speak TLS 1.0 only. I put a stunnel in front of them with SECLEVEL=0, reachable from the collector alone, and an entry in docs/exceptions.md.",
      ],
    ],
    subagent: [
      ["user", "Find out which router models still need TLS 1.0."],
      [
        "assistant",
        "Eleven devices of two models: Edgeline R200 with firmware 3.x, and Cobalt 9. Both have no later firmware.",
      ],
    ],
  },
  {
    agent: "pi",
    project: "beacon",
    day: "2026-06-16",
    name: "On-call rota",
    turns: [
      ["user", "Generate the on-call calendar from rota.toml."],
      ["assistant", "rota.py writes oncall.ics, a week each from Monday 09:00, and swaps are lines in swaps.csv."],
      ["user", "Holidays?"],
      [
        "assistant",
        "A person on holiday is skipped and gets the next free week; holidays come from the calendar of the office in Porto.",
      ],
    ],
  },
];

export const REMEMBERED: readonly RememberedSession[] = [...SHOP, ...ATLAS, ...QUILL, ...LEDGER, ...BEACON];
