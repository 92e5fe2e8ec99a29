import { storm } from "./storms.ts";

storm("faults");
