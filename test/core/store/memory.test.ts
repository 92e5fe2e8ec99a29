/** Sessions in memory keep the contract. */

import { memoryStore } from "../../../src/core/store/memory.ts";
import { keepsTheContract } from "./contract.ts";

keepsTheContract("memory", () => ({ store: memoryStore(), close() {} }));
