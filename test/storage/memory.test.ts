/** Sessions in memory keep the contract, which has a test in SWEEP. */

import { makeMemoryStore } from "../../src/storage/memory.ts";
import { keepsTheContract } from "./contract.ts";

keepsTheContract("memory", () => ({ store: makeMemoryStore(), close() {} }));
