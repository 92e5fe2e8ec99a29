import { storm } from "./storms.ts";

storm("listing");
