import { storm } from "./storms.ts";

storm("fuzz");
