/** Runs a server behind a proxy with a fault, as a process: the fault's name and the server's command follow. */

import { spawn } from "node:child_process";
import { type FaultName, faultyStreams } from "./faults.ts";

const [fault, program, ...args] = process.argv.slice(2);
const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const { input, output } = faultyStreams(fault as FaultName, process.stdin, process.stdout);
input.pipe(child.stdin);
child.stdout.pipe(output);
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("close", (status) => process.exit(status ?? 1));
