/** Sessions in memory keep the contract. */

import { memoryStore } from "../../src/storage/memory.ts";
import { keepsTheContract } from "./contract.ts";

keepsTheContract("memory", () => ({ store: memoryStore(), close() {} }));
