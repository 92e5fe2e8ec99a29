/** Sessions in memory keep the contract, which has a test in SWEEP. */

import { memoryStore } from "../../src/storage/memory.ts";
import { keepsTheContract } from "./contract.ts";

keepsTheContract("memory", () => ({ store: memoryStore(), close() {} }));
